//! A stricter policy that is held against what a run does, and not enforced: what `--shadow` names.

use super::axis::Axis;
use super::effective::Policy;
use super::error::PolicyError;
use super::layer::Layer;
use super::level::Postures;
use super::values::PolicyArg;

/// The stricter policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shadow {
    /// As it was named.
    pub named: PolicyArg,
    /// What it says, with the enforced policy's settings over it, less the postures.
    pub policy: Policy,
}

impl Shadow {
    /// The policy that is named, under what the enforced one's layer says beside postures.
    ///
    /// # Errors
    /// What keeps the named policy from being read; a policy that names a shadow of its own; one that is laxer than the
    /// enforced one on an axis, or stricter on none.
    pub(super) fn of(named: PolicyArg, enforced: Postures, over: &Layer) -> Result<Shadow, PolicyError> {
        let settings = Layer {
            extends: None,
            network: None,
            filesystem: None,
            privilege: None,
            explain: None,
            // A shadow's command sends where it likes, and is answered by whom it asks.
            transparent: Some(false),
            shadow: None,
            ..over.clone()
        };
        let (layer, file) = Layer::of_base(&named)?;
        // Before it is followed: a file may name itself.
        if layer.shadow.is_some() {
            return Err(PolicyError::ShadowOfShadow(named));
        }
        let policy = Policy::of_layers(layer.under(settings), file)?;
        let wanted = policy.postures();
        let laxer = Axis::ALL.into_iter().find(|axis| wanted.of(*axis) < enforced.of(*axis));
        match laxer {
            Some(axis) => {
                Err(PolicyError::ShadowLaxer { named, axis, shadow: wanted.of(axis), enforced: enforced.of(axis) })
            }
            None if wanted == enforced => Err(PolicyError::ShadowNotStricter(named)),
            None => Ok(Shadow { named, policy }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Level, Posture};
    use std::path::Path;

    fn load(policy: Level, flags: &Layer) -> Result<Policy, String> {
        Policy::load(&PolicyArg::Level(policy), flags).map_err(|error| error.to_string())
    }

    fn shadow(of: &str) -> Layer {
        Layer { shadow: Some(of.parse().unwrap()), ..Layer::default() }
    }

    #[test]
    fn a_shadow_is_stricter_on_an_axis_and_laxer_on_none() {
        for (at, enforced) in Level::ALL.into_iter().enumerate() {
            for (other, level) in Level::ALL.into_iter().enumerate() {
                let loaded = load(enforced, &shadow(level.name()));
                assert_eq!(loaded.is_ok(), other > at, "{level} over {enforced}: {loaded:?}");
            }
        }
        let laxer = load(Level::NistHigh, &shadow("non-root")).unwrap_err();
        assert!(
            laxer.starts_with("--shadow non-root: network open is laxer than what is enforced, restricted"),
            "{laxer}"
        );
        let same = load(Level::Control, &shadow("control")).unwrap_err();
        assert!(same.contains("stricter on an axis"), "{same}");
        let crossed = Layer { privilege: Some(Posture::Locked), ..shadow("non-root") };
        assert!(load(Level::Control, &crossed).unwrap_err().contains("privilege restricted is laxer"));
    }

    #[test]
    fn the_enforced_settings_lie_over_the_shadows_and_its_postures_are_its_own() {
        let flags = Layer { allow_host: vec!["a.test".parse().unwrap()], ..shadow("nist-high") };
        let policy = load(Level::Control, &flags).unwrap();
        let of = &policy.shadow.as_ref().unwrap().policy;
        assert_eq!((of.level_name(), &of.network.allow), ("nist-high", &policy.network.allow));
        assert_eq!(of.digest(), load(Level::NistHigh, &Layer { shadow: None, ..flags }).unwrap().digest());
        assert!(policy.to_toml().contains("shadow = \"nist-high\"\n"), "{}", policy.to_toml());
        let plain = load(Level::Control, &Layer::default()).unwrap();
        assert!(plain.shadow.is_none() && plain.digest() != policy.digest());
        let back = Policy::from_toml(Path::new("p.toml"), &policy.to_toml(), &Layer::default()).unwrap();
        assert_eq!(back.digest(), policy.digest());
    }

    #[test]
    fn a_file_may_name_a_shadow_and_be_one_but_not_both() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("stricter.toml");
        std::fs::write(&file, "extends = \"locked\"\nallow-host = [\"b.test\"]\n").unwrap();
        let named = format!("extends = \"control\"\nshadow = \"{}\"\n", file.display());
        let policy = Policy::from_toml(Path::new("p.toml"), &named, &Layer::default()).unwrap();
        let of = &policy.shadow.as_ref().unwrap().policy;
        assert_eq!((of.level_name(), of.network.allow.len(), &of.file), ("locked", 1, &Some(file.clone())));
        std::fs::write(&file, "extends = \"nist-high\"\nshadow = \"locked\"\n").unwrap();
        let error = Policy::from_toml(Path::new("p.toml"), &named, &Layer::default()).unwrap_err().to_string();
        assert!(error.contains("names a shadow of its own"), "{error}");
        std::fs::write(&file, &named).unwrap();
        let itself = Policy::from_toml(&file, &named, &Layer::default()).unwrap_err().to_string();
        assert!(itself.contains("names a shadow of its own"), "{itself}");
        let typo =
            Policy::from_toml(Path::new("p.toml"), "extends = \"control\"\nshadow = \"high\"", &Layer::default());
        let typo = typo.unwrap_err().to_string();
        assert!(typo.starts_with("p.toml:2: \"high\" is no level; accepted: control, non-root"), "{typo}");
    }
}
