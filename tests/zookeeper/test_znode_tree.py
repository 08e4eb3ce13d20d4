"""The simulated ZooKeeper's znodes behave as ZooKeeper's do."""

from linearizability.simulation.znode_tree import ZnodeTree
from reference.zookeeper.operations import (
    Check,
    Code,
    Create,
    Delete,
    GetChildren,
    GetData,
    Multi,
    SetData,
    ZnodeVersion,
)

ME, OTHER = 1, 2
BEGINNING = ZnodeVersion(0)


def tree_with(*paths: str) -> ZnodeTree:
    tree = ZnodeTree()
    for path in paths:
        assert tree.carry_out(Create(path, b"x"), ME).code == Code.OK
    tree.changed.clear()
    return tree


def test_a_write_on_condition_of_another_version_is_refused():
    tree = tree_with("/a")
    assert tree.carry_out(SetData("/a", b"y", BEGINNING), ME).code == Code.OK
    assert tree.carry_out(SetData("/a", b"z", BEGINNING), ME).code == Code.BAD_VERSION
    found = tree.carry_out(GetData("/a"), ME)
    assert (found.data, found.stat.version) == (b"y", 1)
    assert found.stat.mzxid > found.stat.czxid


def test_a_multi_that_fails_changes_nothing_and_names_its_operation():
    tree = tree_with("/a")
    result = tree.carry_out(Multi((SetData("/a", b"y"), Create("/b", b""), Check("/a", BEGINNING))), ME)
    assert (result.code, result.failed) == (Code.BAD_VERSION, 2)
    assert tree.carry_out(GetData("/a"), ME).data == b"x"
    assert tree.carry_out(GetChildren("/"), ME).children == ("a",)
    assert not tree.changed


def test_ephemeral_znodes_vanish_with_their_session_alone():
    tree = tree_with("/a")
    tree.carry_out(Create("/a/mine", b"", ephemeral=True), ME)
    tree.carry_out(Create("/a/yours", b"", ephemeral=True), OTHER)
    tree.changed.clear()
    tree.end_session(ME)
    assert tree.carry_out(GetChildren("/a"), OTHER).children == ("yours",)
    assert tree.changed == [("/a/mine", False), ("/a", True)]


def test_names_of_sequential_znodes_count_on_after_deletions():
    tree = tree_with("/a")
    tree.carry_out(Create("/a/n_", b"", sequential=True), ME)
    tree.carry_out(Delete("/a/n_0000000000"), ME)
    tree.carry_out(Create("/a/n_", b"", sequential=True), ME)
    assert tree.carry_out(GetChildren("/a"), ME).children == ("n_0000000001",)


def test_no_znode_is_made_without_its_parent_or_twice_or_deleted_with_children():
    tree = tree_with("/a", "/a/b")
    assert tree.carry_out(Create("/c/d", b""), ME).code == Code.NO_NODE
    assert tree.carry_out(Create("/a", b""), ME).code == Code.NODE_EXISTS
    assert tree.carry_out(Delete("/a"), ME).code == Code.NOT_EMPTY
