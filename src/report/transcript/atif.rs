//! The Agent Trajectory Interchange Format (ATIF 1.0 to 1.7), one JSON document, read a step at a time.
//!
//! Read are the `content` of an agent step's `observation.results`, text or parts of it, and the names of the tools that
//! gave them; of sub-agents' embedded trajectories the same. Messages, reasoning and arguments are not.

use super::outputs::{Fault, Output, tells};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::io::Read;

#[derive(Deserialize)]
struct Step {
    #[serde(default)]
    source: String,
    #[serde(default)]
    tool_calls: Option<Vec<Call>>,
    #[serde(default)]
    observation: Option<Observation>,
}

#[derive(Deserialize)]
struct Call {
    #[serde(default)]
    tool_call_id: String,
    #[serde(default)]
    function_name: String,
}

#[derive(Deserialize)]
struct Observation {
    #[serde(default)]
    results: Vec<Outcome>,
}

#[derive(Deserialize)]
struct Outcome {
    #[serde(default)]
    source_call_id: Option<String>,
    #[serde(default)]
    content: Option<Content>,
}

/// Text, or parts of which some are text.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Content {
    Text(String),
    Parts(Vec<Part>),
    Other(IgnoredAny),
}

#[derive(Deserialize)]
pub(super) struct Part {
    #[serde(default)]
    text: Option<String>,
}

impl Content {
    /// The text of it, a part a line.
    pub(super) fn text(self) -> String {
        match self {
            Content::Text(text) => text,
            Content::Parts(parts) => parts.into_iter().filter_map(|part| part.text).collect::<Vec<_>>().join("\n"),
            Content::Other(_) => String::new(),
        }
    }
}

pub(super) fn read(text: impl Read, take: &mut impl FnMut(Output<'_>)) -> Result<u64, Fault> {
    let mut document = serde_json::Deserializer::from_reader(text);
    let read = Trajectory(take).deserialize(&mut document).and_then(|()| document.end());
    read.map(|()| 0).map_err(|error| match error.is_io() {
        true => Fault::Read(error.into()),
        false => Fault::Form { line: error.line() as u64, why: format!("is no ATIF trajectory: {error}") },
    })
}

struct Trajectory<'a, F>(&'a mut F);

impl<'de, F: FnMut(Output<'_>)> DeserializeSeed<'de> for Trajectory<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F: FnMut(Output<'_>)> Visitor<'de> for Trajectory<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a trajectory with steps")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let mut steps = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "steps" => {
                    map.next_value_seed(Steps(&mut *self.0))?;
                    steps = true;
                }
                "subagent_trajectories" => map.next_value_seed(Trajectories(&mut *self.0))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        match steps {
            true => Ok(()),
            false => Err(M::Error::missing_field("steps")),
        }
    }
}

struct Steps<'a, F>(&'a mut F);

impl<'de, F: FnMut(Output<'_>)> DeserializeSeed<'de> for Steps<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(Output<'_>)> Visitor<'de> for Steps<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("steps")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut steps: S) -> Result<(), S::Error> {
        while let Some(step) = steps.next_element::<Step>()? {
            give(step, self.0);
        }
        Ok(())
    }
}

fn give(step: Step, take: &mut impl FnMut(Output<'_>)) {
    // What a user or the system observed is no tool's output.
    if step.source != "agent" {
        return;
    }
    let calls = step.tool_calls.unwrap_or_default();
    for outcome in step.observation.map(|observation| observation.results).unwrap_or_default() {
        let Some(content) = outcome.content else { continue };
        let call = outcome.source_call_id.as_deref();
        let made = calls.iter().find(|made| Some(made.tool_call_id.as_str()) == call);
        let text = content.text();
        if tells(made.map(|made| made.function_name.as_str()), &text) {
            take(Output { call, text: &text });
        }
    }
}

struct Trajectories<'a, F>(&'a mut F);

impl<'de, F: FnMut(Output<'_>)> DeserializeSeed<'de> for Trajectories<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: FnMut(Output<'_>)> Visitor<'de> for Trajectories<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("trajectories, or null")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut all: S) -> Result<(), S::Error> {
        while all.next_element_seed(Embedded(&mut *self.0))?.is_some() {}
        Ok(())
    }
}

/// A trajectory within another. It is taken as a value first: a type that holds itself would have no end.
struct Embedded<'a, F>(&'a mut F);

impl<'de, F: FnMut(Output<'_>)> DeserializeSeed<'de> for Embedded<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let mut waiting = vec![serde_json::Value::deserialize(deserializer)?];
        while let Some(mut trajectory) = waiting.pop() {
            if let Some(inner) = trajectory.get_mut("subagent_trajectories").and_then(|inner| inner.as_array_mut()) {
                waiting.append(inner);
            }
            let steps = trajectory.get_mut("steps").and_then(|steps| steps.as_array_mut());
            for step in steps.map(std::mem::take).unwrap_or_default() {
                let step: Step = serde_json::from_value(step).map_err(D::Error::custom)?;
                give(step, self.0);
            }
        }
        Ok(())
    }
}
