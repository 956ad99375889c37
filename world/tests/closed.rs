//! The world itself: closed, thrown away, and the machine untouched.

use std::path::{Path, PathBuf};
use world::address::{BOX4, METADATA4, PRIVATE4};
use world::{Image, World};

#[test]
fn nothing_leads_to_the_real_network() {
    let world = World::new().expect("a world");
    let said = world.shell("ip -o link | cut -d: -f2 | cut -d@ -f1; ip -4 route");
    assert!(said.out.contains("default via 11.22.33.1 dev eth0"), "{said}");
    let own = std::fs::read_link("/proc/self/ns/net").expect("own namespace");
    for namespace in [world.inside(), world.outside()] {
        assert_ne!(own, PathBuf::from(format!("net:[{}]", namespace.inode())));
    }
    // Any address is the outside's own, and nobody listens there.
    let said = world.shell("timeout 5 curl -s --noproxy '*' http://9.9.9.9/; echo $?");
    assert_eq!(said.out.trim(), "7", "{said}");
}

#[test]
fn writes_stay_in_the_box_and_show_in_its_upper_layer() {
    let world = World::new().expect("a world");
    let name = format!("world-test-{}", std::process::id());
    let before = world.changes();
    let said = world
        .shell(&format!("echo x > /usr/{name} && echo y > /etc/{name} && ls -ld /app /workspace && cat /usr/{name}"));
    assert_eq!(said.code, Some(0), "{said}");
    let added: Vec<PathBuf> = world.changes().into_iter().filter(|path| !before.contains(path)).collect();
    assert!(
        added.contains(&Path::new("/usr").join(&name)) && added.contains(&Path::new("/etc").join(&name)),
        "{added:?}"
    );
    assert!(!Path::new("/usr").join(&name).exists(), "the machine's /usr has been written");
    assert!(!world.shell("cat /proc/mounts").out.contains("/upper "), "the upper layer is mounted in the box");
}

#[test]
fn processes_of_the_box_are_seen_and_end_with_it() {
    let world = World::new().expect("a world");
    assert_eq!(world.processes(), [0_u32; 0]);
    let mut command = world.command("sleep");
    command.arg("1000");
    let mut child = world.spawn(command).expect("sleep");
    assert_eq!(world.processes(), [child.id()]);
    drop(world);
    assert!(!child.wait().expect("wait").success());
}

#[test]
fn packets_are_counted_whether_or_not_anything_listens() {
    let world = World::new().expect("a world");
    assert_eq!(world.packets_to(METADATA4), []);
    let said = world.shell("timeout 5 curl -s --noproxy '*' http://169.254.169.254/latest; echo $?");
    assert_eq!(said.out.trim(), "7", "{said}");
    let packets = world.packets_to(METADATA4);
    assert!(packets.iter().all(|one| one.source == BOX4 && one.protocol == 6 && one.destination_port == Some(80)));
    assert_eq!(packets.len(), 1, "one SYN, answered by a reset: {packets:?}");
    assert_eq!(world.packets_to(PRIVATE4), []);
}

#[test]
fn an_empty_image_holds_what_was_put_in() {
    let world = World::with(Image::Empty).expect("a world");
    let entries = world.inside().run(|| {
        let mut names: Vec<_> = std::fs::read_dir("/").expect("/").flatten().map(|one| one.file_name()).collect();
        names.sort();
        names
    });
    assert_eq!(entries, ["dev", "proc", "run", "sys", "tmp"]);
    world.write("/bin/note", "x", 0o644);
    assert_eq!(world.read("/bin/note").as_deref(), Some(&b"x"[..]));
}

#[test]
fn workspaces_on_three_file_systems() {
    let world = World::new().expect("a world");
    world.mount_memory("/memory").expect("tmpfs");
    world.mount_ext4("/disk").expect("ext4");
    let said = world.shell("stat -f -c %T /workspace /memory /disk && touch /disk/file");
    assert_eq!(said.out, "overlayfs\ntmpfs\next2/ext3\n", "{said}");
}
