import pytest

from launcher.ranks import rank_plan


@pytest.mark.parametrize(("nnodes", "nproc"), [(1, 1), (3, 1), (1, 8), (3, 4)])
def test_ranks_are_numbered_node_by_node_without_gaps(nnodes: int, nproc: int) -> None:
    plan = rank_plan([nproc] * nnodes, master_addr="10.0.0.4", master_port=1234)
    ranks = [rank for node in plan for rank in node]
    assert [rank["RANK"] for rank in ranks] == [str(number) for number in range(nnodes * nproc)]
    assert {rank["WORLD_SIZE"] for rank in ranks} == {str(nnodes * nproc)}
    assert {(rank["MASTER_ADDR"], rank["MASTER_PORT"]) for rank in ranks} == {("10.0.0.4", "1234")}
    for node_rank, node in enumerate(plan):
        assert [rank["LOCAL_RANK"] for rank in node] == [str(number) for number in range(nproc)]
        assert {rank["LOCAL_WORLD_SIZE"] for rank in node} == {str(nproc)}
        assert {rank["GROUP_RANK"] for rank in node} == {rank["NODE_RANK"] for rank in node}
        assert {rank["NODE_RANK"] for rank in node} == {str(node_rank)}


def test_nodes_may_have_different_numbers_of_ranks() -> None:
    plan = rank_plan([1, 3, 2], master_addr="10.0.0.4", master_port=1234)
    assert [[rank["RANK"] for rank in node] for node in plan] == [["0"], ["1", "2", "3"], ["4", "5"]]
    assert [{rank["LOCAL_WORLD_SIZE"] for rank in node} for node in plan] == [{"1"}, {"3"}, {"2"}]
    assert {rank["WORLD_SIZE"] for node in plan for rank in node} == {"6"}
