//! Transcripts that are a JSON object in each line: Claude Code's sessions (and its `stream-json`), Codex's rollouts (and
//! its `exec --json`).
//!
//! Claude Code: a `user` line whose `message.content` has `tool_result` blocks; the names of the tools stand in the
//! `tool_use` blocks of `assistant` lines. Codex: `function_call_output` and `custom_tool_call_output` items, bare or as the
//! `payload` of a `response_item`; `exec_command_end` and `patch_apply_end` events; `command_execution` and
//! `mcp_tool_call` items once they are completed.

use super::atif::Content;
use super::outputs::{Output, tells};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;

/// How many calls' tools are remembered.
const CALLS: usize = 65_536;

/// What has been read of one transcript.
#[derive(Debug, Default)]
pub(super) struct Reader {
    known: bool,
    /// The tool of each call that is not answered yet.
    tools: HashMap<String, String>,
}

impl Reader {
    /// Whether any line had a known form.
    pub(super) fn known(&self) -> bool {
        self.known
    }

    /// Gives the outputs in a line; false where it is no JSON object.
    pub(super) fn line(&mut self, line: &[u8], take: &mut impl FnMut(Output<'_>)) -> bool {
        let Ok(Value::Object(line)) = serde_json::from_slice(line) else {
            return false;
        };
        let value = Value::Object(line);
        match text_of(&value, "type") {
            "user" | "assistant" | "system" if value.get("message").is_some() || value.get("session_id").is_some() => {
                self.claude(&value, take);
            }
            "summary" | "file-history-snapshot" | "queue-operation" | "progress" | "result" => self.known = true,
            "response_item" | "event_msg" => self.codex(&value["payload"], take),
            "session_meta" | "turn_context" | "compacted" => self.known = true,
            "item.completed" => self.codex(&value["item"], take),
            "thread.started" | "turn.started" | "turn.completed" | "item.started" | "item.updated" => self.known = true,
            _ if value.get("msg").is_some() => self.codex(&value["msg"], take),
            _ => self.codex(&value, take),
        }
        true
    }

    fn claude(&mut self, line: &Value, take: &mut impl FnMut(Output<'_>)) {
        self.known = true;
        let Some(blocks) = line["message"]["content"].as_array() else {
            return;
        };
        for block in blocks {
            match (text_of(line, "type"), text_of(block, "type")) {
                ("assistant", "tool_use") if self.tools.len() < CALLS => {
                    self.tools.insert(text_of(block, "id").to_owned(), text_of(block, "name").to_owned());
                }
                ("user", "tool_result") => {
                    let call = block["tool_use_id"].as_str();
                    let tool = call.and_then(|call| self.tools.remove(call));
                    let text = content(&block["content"]);
                    // A sub-agent's answer is a model's words, whatever its tool is called.
                    let spoken = line["toolUseResult"].get("agentId").is_some();
                    if !spoken && tells(tool.as_deref(), &text) {
                        take(Output { call, text: &text });
                    }
                }
                _ => {}
            }
        }
    }

    fn codex(&mut self, item: &Value, take: &mut impl FnMut(Output<'_>)) {
        let call = item["call_id"].as_str();
        let mut give = |text: &str| take(Output { call, text });
        match text_of(item, "type") {
            "function_call_output" | "custom_tool_call_output" | "local_shell_call_output" => {
                give(&printed(&item["output"]));
            }
            "exec_command_end" | "patch_apply_end" => {
                let all = text_of(item, "aggregated_output");
                match all.is_empty() {
                    true => give(&format!("{}\n{}", text_of(item, "stdout"), text_of(item, "stderr"))),
                    false => give(all),
                }
            }
            // The identifier is the item's, which no other record of the same call has.
            "command_execution" => give(text_of(item, "aggregated_output")),
            "mcp_tool_call" => {
                give(&content(&item["result"]["content"]));
                give(text_of(&item["error"], "message"));
            }
            "message" | "reasoning" | "function_call" | "custom_tool_call" | "local_shell_call" | "agent_message"
            | "user_message" | "agent_reasoning" | "token_count" | "file_change" | "todo_list" | "web_search"
            | "task_started" | "task_complete" | "error" => {}
            _ => return,
        }
        self.known = true;
    }
}

fn text_of<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Text, or the text of its parts.
fn content(value: &Value) -> String {
    Content::deserialize(value).map(Content::text).unwrap_or_default()
}

/// What a call of Codex's printed: text, parts, or an object or a text of JSON that holds it.
fn printed(output: &Value) -> String {
    let inner = |value: &Value| {
        let text = value.get("output").or_else(|| value.get("content"))?;
        Some(content(text))
    };
    match output {
        Value::String(text) if text.trim_start().starts_with('{') => {
            serde_json::from_str(text).ok().and_then(|value| inner(&value)).unwrap_or_else(|| text.clone())
        }
        Value::Object(_) => inner(output).unwrap_or_default(),
        other => content(other),
    }
}
