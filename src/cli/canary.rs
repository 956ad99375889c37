//! The arguments of `ringfence canary`.

use crate::canary::{CanaryError, PlantRequest, ScanRequest, Token};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `ringfence canary`.
#[derive(Debug, Subcommand)]
pub enum CanaryCommand {
    /// Put a token into each file, in a comment or in a file beside it, and print file, token and pattern
    Plant(PlantArgs),
    /// Look for tokens, however encoded or packed: 0 none, 1 found, 2 none found and something not read
    Scan(ScanArgs),
}

/// `ringfence canary plant`.
#[derive(Debug, Args)]
pub struct PlantArgs {
    /// Files, and directories whose files are all meant
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Write the tokens to a file, of mode 0600, which `scan` reads; those that it has already stay
    #[arg(long, value_name = "FILE")]
    pub tokens: Option<PathBuf>,
    /// Print JSON, a line each
    #[arg(long)]
    pub json: bool,
}

impl PlantArgs {
    /// What is asked.
    pub fn request(&self) -> PlantRequest {
        PlantRequest { paths: self.paths.clone(), tokens: self.tokens.clone(), json: self.json }
    }
}

/// `ringfence canary scan`.
#[derive(Debug, Args)]
pub struct ScanArgs {
    /// Directories with all that is in them, and files
    #[arg(required = true, value_name = "DIR")]
    pub paths: Vec<PathBuf>,
    /// Look for the tokens of this file, as `plant` writes it; may be given more than once
    #[arg(long, value_name = "FILE")]
    pub tokens: Vec<PathBuf>,
    /// Look for this token; may be given more than once
    #[arg(long, value_name = "TEXT")]
    pub token: Vec<String>,
    /// Look for what this pattern matches: text with classes, such as CANARY_x[0-9]; may be given more than once
    #[arg(long, value_name = "REGEX")]
    pub pattern: Vec<String>,
    /// Files of this name are transcripts, and no others; * is any text; may be given more than once
    #[arg(long, value_name = "GLOB")]
    pub transcript: Vec<String>,
    /// Pass over what has this name; may be given more than once
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// How much may be unpacked from one file, in MiB
    #[arg(long, value_name = "MIB", default_value = "1024", value_parser = clap::value_parser!(u64).range(0..=1 << 24))]
    pub unpack_limit: u64,
    /// How much may be unpacked in all, in MiB
    #[arg(long, value_name = "MIB", default_value = "65536", value_parser = clap::value_parser!(u64).range(0..=1 << 32))]
    pub unpack_total: u64,
    /// Print JSON, a line each
    #[arg(long)]
    pub json: bool,
}

impl ScanArgs {
    /// What is asked.
    ///
    /// # Errors
    /// A token or a pattern that is none.
    pub fn request(&self) -> Result<ScanRequest, CanaryError> {
        let mut tokens = self.token.iter().map(|text| Token::given(text)).collect::<Result<Vec<_>, _>>()?;
        for pattern in &self.pattern {
            tokens.extend(Token::of_pattern(pattern)?);
        }
        Ok(ScanRequest {
            paths: self.paths.clone(),
            tokens_files: self.tokens.clone(),
            tokens,
            transcripts: self.transcript.clone(),
            excluded: self.exclude.clone(),
            unpack_limit: self.unpack_limit << 20,
            unpack_total: self.unpack_total << 20,
            json: self.json,
        })
    }
}
