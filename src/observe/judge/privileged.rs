//! The verdict on calls that need a capability.

use super::{Looked, Verdict};
use crate::observe::act::{Base, Place, Value};
use crate::observe::ask::{self, Answer};
use crate::observe::caller::{Name, Unread};
use crate::observe::told::Target;
use crate::observe::walk;

impl Looked<'_> {
    /// The verdict on one, which is made again here.
    pub(super) fn privileged(&self, values: &[Value]) -> Result<Verdict, Unread> {
        if self.number == nix::libc::SYS_open_by_handle_at && !self.names_mount(values)? {
            return Ok(Verdict::GoOn);
        }
        let mut names = Vec::new();
        for value in values {
            if let Value::Path(place) = value {
                names.push(self.plain_name(place)?);
            }
        }
        Ok(match ask::again(self.number, values, &names) {
            Answer::Refused(errno) => {
                let object = crate::observe::describe::values(self.watched.call, values);
                self.by_capability(errno, Target::Text(object))
            }
            _ => Verdict::GoOn,
        })
    }

    /// Whether the first of the values names a mount to open_by_handle_at(2), one of those that need a capability: handles
    /// of processes and of namespaces are for everyone.
    fn names_mount(&self, values: &[Value]) -> Result<bool, Unread> {
        const PID_FS_MAGIC: nix::libc::c_long = 0x5049_4446;
        let Some(Value::Number(mount)) = values.first() else { return Ok(false) };
        let mount = *mount as i32;
        if mount < 0 {
            return Ok(true);
        }
        if !self.caller.has_file(mount)? {
            return Ok(false);
        }
        let held = self.caller.hold(Base::File(mount))?;
        let of = |found: nix::sys::statfs::Statfs| found.filesystem_type();
        let kind = nix::sys::statfs::fstatfs(&held).map(of).map_err(|errno| Unread::Failed("fstatfs", errno))?;
        Ok(kind != nix::sys::statfs::NSFS_MAGIC && kind.0 != PID_FS_MAGIC)
    }

    /// A name for a place, also where the caller's spelling means itself.
    fn plain_name(&self, place: &Place) -> Result<Name, Unread> {
        let name = self.caller.name(place)?;
        let too_long = name.is_too_long();
        if !too_long && walk::is_plain(self.caller, place) {
            return Ok(name);
        }
        let found = walk::walk(self.caller, &name).ok().filter(|found| too_long || found.by_self);
        Ok(found.and_then(|found| found.into_name(name.follow)).unwrap_or(name))
    }
}
