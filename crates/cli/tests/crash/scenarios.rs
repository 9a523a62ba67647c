//! The table of scenarios: every mutating call in every variant that takes another path through the driver.

use crate::drill::{Disk, Scenario};
use crate::step::From::{self, Nothing};
use crate::step::{Shape, Step, Vol};

const EXT4: Vol = Vol { name: "ext4", shape: Shape::Ext4, mib: 32 };
const OTHER: Vol = Vol { name: "other", shape: Shape::Ext4, mib: 32 };
const THICK: Vol = Vol { name: "thick", shape: Shape::Thick, mib: 32 };
const XFS: Vol = Vol { name: "xfs", shape: Shape::Xfs, mib: 300 };
const BLOCK: Vol = Vol { name: "block", shape: Shape::Block, mib: 16 };
const DIRECTORY: Vol = Vol { name: "directory", shape: Shape::Directory, mib: 16 };
const INLINE: Vol = Vol { name: "inline", shape: Shape::Inline, mib: 32 };
const INLINE_BLOCK: Vol = Vol { name: "inline-block", shape: Shape::InlineBlock, mib: 32 };
/// Large enough that a copy notes its progress twice on its way.
const LARGE: Vol = Vol { name: "large", shape: Shape::Block, mib: 36 };

/// A copy of a volume: larger by a bit, so that copying and growing both happen.
const fn copy_of(vol: Vol) -> Vol {
    Vol { name: "copy", shape: vol.shape, mib: vol.mib + 4 }
}

const SNAPSHOT: &str = "snapshot";
const GROUP: &str = "group";
const DATA: &str = "data before the crash";
const NEWER: &str = "data after the snapshot";

/// A scenario to be completed with `.undo`, `.proof` and so on.
fn scenario(name: &'static str, disk: Disk, before: impl IntoIterator<Item = Vec<Step>>, call: Step) -> Scenario {
    Scenario {
        name,
        disk,
        before: before.into_iter().flatten().collect(),
        call,
        undo: Vec::new(),
        proof: Vec::new(),
        undone: Vec::new(),
        later_hits: &[],
    }
}

impl Scenario {
    fn undo(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.undo.extend(steps);
        self
    }

    fn proof(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.proof.extend(steps);
        self
    }

    fn undone(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.undone.extend(steps);
        self
    }
}

fn create(vol: Vol) -> Vec<Step> {
    vec![Step::Create(vol, Nothing)]
}

fn attached(vol: Vol) -> Vec<Step> {
    vec![Step::Create(vol, Nothing), Step::Attach(vol)]
}

fn staged(vol: Vol) -> Vec<Step> {
    vec![Step::Create(vol, Nothing), Step::Attach(vol), Step::Stage(vol)]
}

fn up(vol: Vol) -> Vec<Step> {
    vec![Step::Attach(vol), Step::Stage(vol), Step::Publish(vol)]
}

fn down(vol: Vol) -> Vec<Step> {
    vec![Step::Unpublish(vol), Step::Unstage(vol), Step::Detach(vol)]
}

/// Published, with data in it.
fn in_use(vol: Vol) -> Vec<Step> {
    [create(vol), up(vol), vec![Step::Fill(vol, DATA)]].concat()
}

/// With data in it, and not in use.
fn at_rest(vol: Vol) -> Vec<Step> {
    [in_use(vol), down(vol)].concat()
}

/// Brings a volume up and finds the data in it.
fn shows(vol: Vol, data: &'static str) -> Vec<Step> {
    [up(vol), vec![Step::Holds(vol, data)]].concat()
}

fn gone(vol: Vol) -> Vec<Step> {
    [down(vol), vec![Step::Delete(vol)]].concat()
}

/// Every scenario. Those that take longest come first, so that workers end at about the same time.
pub(crate) fn all() -> Vec<Scenario> {
    [staging(), copies(), snapshots(), groups(), publishing(), inline(), creating(), changing()].concat()
}

fn creating() -> Vec<Scenario> {
    let made = |name, disk, vol: Vol| {
        scenario(name, disk, [], Step::Create(vol, Nothing))
            .undo([Step::Delete(vol)])
            .proof([up(vol), vec![Step::Fill(vol, DATA), Step::Holds(vol, DATA)]].concat())
    };
    let deleted =
        |name, disk, vol: Vol| scenario(name, disk, [create(vol)], Step::Delete(vol)).undo(create(vol)).undone(up(vol));
    vec![
        made("create ext4", Disk::Ext4, EXT4),
        made("create thick", Disk::Ext4, THICK),
        made("create block", Disk::Ext4, BLOCK),
        made("create directory", Disk::Ext4, DIRECTORY),
        made("create ext4 on XFS", Disk::Xfs, EXT4),
        made("create subvolume", Disk::Btrfs, DIRECTORY),
        deleted("delete ext4", Disk::Ext4, EXT4),
        deleted("delete directory", Disk::Ext4, DIRECTORY),
        deleted("delete subvolume", Disk::Btrfs, DIRECTORY),
        scenario("delete with data", Disk::Xfs, [at_rest(EXT4)], Step::Delete(EXT4)).undo([Step::Delete(EXT4)]),
    ]
}

fn copies() -> Vec<Scenario> {
    let restored = |name, disk, vol: Vol| {
        let copy = copy_of(vol);
        let before = [at_rest(vol), vec![Step::Snapshot(SNAPSHOT, vol)]];
        scenario(name, disk, before, Step::Create(copy, From::Snapshot(SNAPSHOT)))
            .undo([Step::Delete(copy)])
            .proof([shows(vol, DATA), shows(copy, DATA)].concat())
            .undone(shows(vol, DATA))
    };
    let cloned = |name, disk, vol: Vol| {
        let copy = copy_of(vol);
        scenario(name, disk, [at_rest(vol)], Step::Create(copy, From::Volume(vol)))
            .undo([Step::Delete(copy)])
            .proof([shows(vol, DATA), shows(copy, DATA)].concat())
            .undone(shows(vol, DATA))
    };
    let cloned_in_use = |name, disk, vol: Vol| {
        let copy = copy_of(vol);
        scenario(name, disk, [in_use(vol)], Step::Create(copy, From::Volume(vol)))
            .undo([Step::Delete(copy)])
            .proof([vec![Step::Holds(vol, DATA)], shows(copy, DATA)].concat())
            .undone([Step::Holds(vol, DATA)])
    };
    let mut large = cloned("clone a large volume", Disk::Ext4, LARGE);
    large.later_hits = &["copy.progress:2", "copy.progress:3"];
    vec![
        large,
        restored("restore ext4", Disk::Ext4, EXT4),
        restored("restore ext4 on XFS", Disk::Xfs, EXT4),
        restored("restore subvolume", Disk::Btrfs, DIRECTORY),
        cloned("clone ext4", Disk::Ext4, EXT4),
        cloned("clone directory", Disk::Ext4, DIRECTORY),
        cloned("clone block on XFS", Disk::Xfs, BLOCK),
        cloned("clone subvolume", Disk::Btrfs, DIRECTORY),
        cloned("clone thick on XFS", Disk::Xfs, THICK),
        cloned_in_use("clone ext4 in use", Disk::Ext4, EXT4),
        cloned_in_use("clone ext4 in use on XFS", Disk::Xfs, EXT4),
        cloned_in_use("clone subvolume in use", Disk::Btrfs, DIRECTORY),
    ]
}

fn snapshots() -> Vec<Scenario> {
    let at_rest_cut = |name, disk, vol: Vol| {
        let copy = copy_of(vol);
        scenario(name, disk, [at_rest(vol)], Step::Snapshot(SNAPSHOT, vol))
            .undo([Step::DeleteSnapshot(SNAPSHOT)])
            .proof([vec![Step::Create(copy, From::Snapshot(SNAPSHOT))], shows(copy, DATA), shows(vol, DATA)].concat())
            .undone(shows(vol, DATA))
    };
    let in_use_cut = |name, disk, vol: Vol| {
        let copy = copy_of(vol);
        let restore =
            vec![Step::Holds(vol, DATA), Step::Fill(vol, NEWER), Step::Create(copy, From::Snapshot(SNAPSHOT))];
        scenario(name, disk, [in_use(vol)], Step::Snapshot(SNAPSHOT, vol))
            .undo([Step::DeleteSnapshot(SNAPSHOT)])
            .proof([restore, shows(copy, DATA), vec![Step::Holds(vol, NEWER)]].concat())
            .undone([Step::Holds(vol, DATA)])
    };
    let deleted = |name, disk, vol: Vol| {
        scenario(name, disk, [in_use(vol), vec![Step::Snapshot(SNAPSHOT, vol)]], Step::DeleteSnapshot(SNAPSHOT))
            .undo([Step::Snapshot(SNAPSHOT, vol)])
            .proof([Step::Holds(vol, DATA)])
            .undone([Step::Holds(vol, DATA)])
    };
    vec![
        at_rest_cut("snapshot ext4", Disk::Ext4, EXT4),
        at_rest_cut("snapshot block on XFS", Disk::Xfs, BLOCK),
        at_rest_cut("snapshot directory", Disk::Ext4, DIRECTORY),
        in_use_cut("snapshot ext4 in use", Disk::Ext4, EXT4),
        in_use_cut("snapshot ext4 in use on XFS", Disk::Xfs, EXT4),
        in_use_cut("snapshot xfs in use on XFS", Disk::Xfs, XFS),
        in_use_cut("snapshot subvolume in use", Disk::Btrfs, DIRECTORY),
        deleted("delete snapshot on XFS", Disk::Xfs, EXT4),
        deleted("delete snapshot of a subvolume", Disk::Btrfs, DIRECTORY),
    ]
}

fn groups() -> Vec<Scenario> {
    let both = || vec![EXT4, OTHER];
    let hold = || [Step::Holds(EXT4, DATA), Step::Holds(OTHER, DATA)];
    let cut = |name, disk| {
        scenario(name, disk, [in_use(EXT4), in_use(OTHER)], Step::Group(GROUP, both()))
            .undo([Step::DeleteGroup(GROUP, 2)])
            .proof(hold())
            .undone(hold())
    };
    let before = [in_use(EXT4), in_use(OTHER), vec![Step::Group(GROUP, both())]];
    let deleted = scenario("delete group on XFS", Disk::Xfs, before, Step::DeleteGroup(GROUP, 2))
        .undo([Step::Group(GROUP, both())])
        .proof(hold())
        .undone(hold());
    vec![cut("group in use", Disk::Ext4), cut("group in use on XFS", Disk::Xfs), deleted]
}

fn staging() -> Vec<Scenario> {
    let stage = |name, before: Vec<Vec<Step>>, vol: Vol| {
        scenario(name, Disk::Xfs, before, Step::Stage(vol)).undo([Step::Unstage(vol)])
    };
    let first = |name, vol: Vol| {
        let used = vec![Step::Publish(vol), Step::Fill(vol, DATA), Step::Holds(vol, DATA)];
        stage(name, vec![attached(vol)], vol).proof(used)
    };
    let copy = copy_of(EXT4);
    let restored = [Step::Create(copy, From::Volume(EXT4)), Step::Attach(copy)];
    let xfs_copy = copy_of(XFS);
    let xfs_restored = [Step::Create(xfs_copy, From::Volume(XFS)), Step::Attach(xfs_copy)];
    let expanded = |vol: Vol| vec![Step::Expand(vol, vol.mib * 2), Step::Attach(vol)];
    let larger = |vol: Vol| [Step::Publish(vol), Step::Holds(vol, DATA), Step::HasRoom(vol, vol.mib * 2)];
    vec![
        stage("stage a copy of xfs in use", vec![in_use(XFS), xfs_restored.to_vec()], xfs_copy)
            .proof([Step::Publish(xfs_copy), Step::Holds(xfs_copy, DATA), Step::Holds(XFS, DATA)])
            .proof([Step::OwnIdentity(XFS, xfs_copy), Step::HasRoom(xfs_copy, xfs_copy.mib)])
            .undone([Step::Holds(XFS, DATA)]),
        stage("stage xfs after expanding", vec![at_rest(XFS), expanded(XFS)], XFS).proof(larger(XFS)),
        first("stage ext4 for the first time", EXT4),
        first("stage xfs for the first time", XFS),
        first("stage block", BLOCK),
        first("stage directory", DIRECTORY),
        stage("stage ext4 again", vec![at_rest(EXT4), vec![Step::Attach(EXT4)]], EXT4)
            .proof([Step::Publish(EXT4), Step::Holds(EXT4, DATA)])
            .undone([Step::Stage(EXT4), Step::Publish(EXT4), Step::Holds(EXT4, DATA)]),
        stage("stage a copy of ext4", vec![in_use(EXT4), restored.to_vec()], copy)
            .proof([Step::Publish(copy), Step::Holds(copy, DATA), Step::Holds(EXT4, DATA)])
            .proof([Step::OwnIdentity(EXT4, copy), Step::HasRoom(copy, copy.mib)])
            .undone([Step::Holds(EXT4, DATA)]),
        stage("stage ext4 after expanding", vec![at_rest(EXT4), expanded(EXT4)], EXT4).proof(larger(EXT4)),
        unstaging("unstage ext4", EXT4),
        unstaging("unstage block", BLOCK),
        unstaging("unstage directory", DIRECTORY),
    ]
}

fn unstaging(name: &'static str, vol: Vol) -> Scenario {
    let finds = vec![Step::Stage(vol), Step::Publish(vol), Step::Holds(vol, DATA)];
    scenario(name, Disk::Xfs, [in_use(vol), vec![Step::Unpublish(vol)]], Step::Unstage(vol))
        .undo([Step::Stage(vol)])
        .proof(finds)
        .undone([Step::Publish(vol), Step::Holds(vol, DATA)])
}

fn publishing() -> Vec<Scenario> {
    let published = |name, disk, vol: Vol| {
        scenario(name, disk, [staged(vol)], Step::Publish(vol))
            .undo([Step::Unpublish(vol)])
            .proof([Step::Fill(vol, DATA), Step::Holds(vol, DATA)])
    };
    let read_only = |name, vol: Vol| {
        scenario(name, Disk::Xfs, [in_use(vol), vec![Step::Unpublish(vol)]], Step::PublishReadonly(vol))
            .undo([Step::Unpublish(vol)])
            .proof([Step::Holds(vol, DATA)])
    };
    let unpublished = |name, vol: Vol| {
        scenario(name, Disk::Xfs, [in_use(vol)], Step::Unpublish(vol))
            .undo([Step::Publish(vol)])
            .proof([Step::Publish(vol), Step::Holds(vol, DATA)])
            .undone([Step::Holds(vol, DATA)])
    };
    vec![
        published("publish ext4", Disk::Xfs, EXT4),
        published("publish block", Disk::Xfs, BLOCK),
        published("publish directory", Disk::Xfs, DIRECTORY),
        published("publish subvolume", Disk::Btrfs, DIRECTORY),
        read_only("publish ext4 read-only", EXT4),
        read_only("publish block read-only", BLOCK),
        unpublished("unpublish ext4", EXT4),
        unpublished("unpublish block", BLOCK),
        unpublished("unpublish directory", DIRECTORY),
    ]
}

fn inline() -> Vec<Scenario> {
    let published = |name, vol: Vol| {
        scenario(name, Disk::Xfs, [], Step::PublishInline(vol))
            .undo([Step::Unpublish(vol)])
            .proof([Step::Fill(vol, DATA), Step::Holds(vol, DATA)])
    };
    let unpublished = |name, vol: Vol| {
        scenario(name, Disk::Xfs, [vec![Step::PublishInline(vol)]], Step::Unpublish(vol))
            .undo([Step::PublishInline(vol)])
    };
    vec![
        published("publish inline", INLINE),
        unpublished("unpublish inline", INLINE),
        published("publish inline block", INLINE_BLOCK),
        unpublished("unpublish inline block", INLINE_BLOCK),
    ]
}

fn changing() -> Vec<Scenario> {
    let expanded = Step::Expand(EXT4, 64);
    let at_rest_expanded = scenario("expand ext4", Disk::Xfs, [at_rest(EXT4)], expanded.clone())
        .undo([Step::Delete(EXT4)])
        .proof([shows(EXT4, DATA), vec![Step::HasRoom(EXT4, 64)]].concat());
    let in_use_expanded = scenario("expand ext4 in use", Disk::Xfs, [in_use(EXT4)], expanded)
        .undo(gone(EXT4))
        .proof([Step::Holds(EXT4, DATA)]);
    let before = [in_use(XFS), vec![Step::Expand(XFS, 600)]];
    let node_expanded = scenario("expand xfs on the node", Disk::Xfs, before, Step::NodeExpand(XFS))
        .undo(gone(XFS))
        .proof([Step::Holds(XFS, DATA), Step::HasRoom(XFS, 600)]);
    let modified = scenario("modify", Disk::Xfs, [in_use(EXT4)], Step::Modify(EXT4))
        .undo(gone(EXT4))
        .proof([Step::Holds(EXT4, DATA), Step::IsModified(EXT4)]);
    vec![
        at_rest_expanded,
        in_use_expanded,
        node_expanded,
        modified,
        scenario("attach", Disk::Xfs, [create(EXT4)], Step::Attach(EXT4))
            .undo([Step::Detach(EXT4)])
            .proof([Step::Stage(EXT4)]),
        scenario("detach", Disk::Xfs, [attached(EXT4)], Step::Detach(EXT4))
            .undo([Step::Attach(EXT4)])
            .undone([Step::Stage(EXT4)]),
    ]
}
