"""The words of a CAMP run in the terminal."""

from camp.report import CampLines

METRICS = {
    "step": 3,
    "final_step": 10,
    "episodes/reward": 0.25,
    "domain/games/reward": 0.5,
    "domain/quests/reward": 0.0,
    "episodes/limit_rate": 0.125,
    "staleness/mean": 1.0,
}
LIVE = {"under_way": 4, "finished": 2, "retried": 0}


def test_an_update_of_rl():
    line = CampLines().step({**METRICS, "critic/vf_loss": 1.0, "critic/vf_explained_var": 0.5}, [2.0, 4.0])
    assert line == (
        "update  3/10  reward 0.250 (games 0.50  quests 0.00)  limits 12%  stale 1.0  explained 0.50  4.0 s  left 21 s"
    )


def test_an_update_of_opd_tells_the_distance_and_what_has_no_scores():
    line = CampLines().step({**METRICS, "distillation/kl": 0.5, "distillation/unscored": 0}, [2.0])
    assert "  distance 0.500  2.0 s" in line and "unscored" not in line
    line = CampLines().step({**METRICS, "distillation/kl": 0.5, "distillation/unscored": 2}, [2.0])
    assert "  distance 0.500  unscored 2  2.0 s" in line


def test_what_is_under_way():
    lines = CampLines()
    assert lines.progress(2, {}, None, 1.4) == "update 2: 1 s"
    told = "update 2: 2 episodes finished since the last one, 4 under way"
    assert lines.progress(2, {}, LIVE, 1.4) == f"{told}, 1 s"
    assert lines.progress(2, {}, {**LIVE, "at_teacher": 3, "retried": 1}, 1.4) == (
        f"{told}, 3 at the teacher, 1 begun anew, 1 s"
    )
