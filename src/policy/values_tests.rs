//! Each value's text form.
use super::*;
