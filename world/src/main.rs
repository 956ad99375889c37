//! `world up -- COMMAND…`: builds a closed world with its servers, runs a command in the box, and takes it down.

use std::process::{ExitCode, Stdio};
use world::address::{METADATA4, PRIVATE4, PUBLIC4, PUBLIC6};
use world::internet::STRANGER;
use world::{Internet, World, origin, repository};

const USAGE: &str = "usage: world up [--put FILE PATH]… -- COMMAND [ARGUMENT…]

Runs COMMAND as root in a closed network world: pypi.org, registry.npmjs.org and github.com (with
/project.git) resolve there to servers of the world; nothing leads to the real network, and every
file that is written is gone afterwards. --put copies a file of the machine to PATH in the world.";

/// A name on the allowlist whose address the world's resolver makes a private one.
const REBOUND: &str = "files.pythonhosted.org";
/// A name on the allowlist whose address the world's resolver makes the metadata service's.
const METADATA: &str = "static.crates.io";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(asked) = read(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match up(&asked) {
        Ok(code) => ExitCode::from(code),
        Err(cause) => {
            eprintln!("world: {cause}");
            ExitCode::from(125)
        }
    }
}

/// What the command line asks for.
struct Asked<'a> {
    /// Files of the machine, and where they go in the world.
    files: Vec<(&'a str, &'a str)>,
    command: &'a [String],
}

fn read(arguments: &[String]) -> Option<Asked<'_>> {
    let (mut rest, mut files) = (arguments.strip_prefix(&["up".to_owned()])?, Vec::new());
    while let [flag, from, to, after @ ..] = rest
        && flag == "--put"
    {
        files.push((from.as_str(), to.as_str()));
        rest = after;
    }
    match rest {
        [dashes, command @ ..] if dashes == "--" && !command.is_empty() => Some(Asked { files, command }),
        _ => None,
    }
}

fn up(Asked { files, command }: &Asked<'_>) -> Result<u8, Box<dyn std::error::Error>> {
    let world = World::new()?;
    let (standard, project) = (origin::standard(), project()?);
    let internet = Internet::serving(
        &world,
        std::sync::Arc::new(move |request| match request.path() {
            path if path.starts_with("/project.git/") => project(request),
            _ => standard(request),
        }),
    )?;
    internet.resolver.host(REBOUND, &[PRIVATE4.into()]);
    internet.resolver.host(METADATA, &[METADATA4.into()]);
    for (from, to) in files {
        world.install(from.as_ref(), to);
    }
    let mut inside = world.command(&command[0]);
    inside
        .args(&command[1..])
        .stdin(Stdio::inherit())
        .env("WORLD_PUBLIC4", PUBLIC4.to_string())
        .env("WORLD_PUBLIC6", PUBLIC6.to_string())
        .env("WORLD_PRIVATE4", PRIVATE4.to_string())
        .env("WORLD_METADATA4", METADATA4.to_string())
        .env("WORLD_STRANGER", STRANGER)
        .env("WORLD_NAME_OF_PRIVATE", REBOUND)
        .env("WORLD_NAME_OF_METADATA", METADATA);
    let status = world.spawn(inside)?.wait()?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(125))
}

/// A Git repository to clone; its directory is gone before the command runs.
fn project() -> Result<origin::Content, Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("world-{}", std::process::id()));
    std::fs::create_dir(&path)?;
    let content = repository(&path).and_then(|_| origin::directory(&path));
    std::fs::remove_dir_all(&path)?;
    Ok(content?)
}
