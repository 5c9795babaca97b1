"""The picture and the numbers of a run."""

import json

from onepo.report.curves import RECENT, figure_for, main, read_domains, read_metric, recent_means
from onepo.trainers.journal import METRICS_FILE


def write(folder, records):
    lines = [json.dumps({"step": step, **record}) for step, record in enumerate(records, 1)]
    (folder / METRICS_FILE).write_text("\n".join(lines) + "\n")


def test_a_run_of_camp_is_told_by_domain(tmp_path, capsys):
    rewards = [{"domain/games/reward": 0.0}] * RECENT + [{"domain/games/reward": 0.5}] * RECENT
    write(tmp_path, [{**record, "domain/a/b/reward": 1.0} for record in rewards])
    assert read_domains(tmp_path) == ["a/b", "games"]
    assert main([str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert f"reward in games: 0.000 in the first {RECENT} updates, 0.500 in the last {RECENT}" in told
    assert (tmp_path / "curve.png").stat().st_size > 10_000


def test_a_run_of_onepo_has_no_domains(tmp_path, capsys):
    write(tmp_path, [{"validation/acc": 0.25}, {}, {"validation/acc": 0.75}])
    assert read_domains(tmp_path) == []
    assert read_metric(tmp_path, "validation/acc") == ([1, 3], [0.25, 0.75])
    assert main([str(tmp_path)]) == 0
    assert "held-out accuracy: 0.250 at step 1, 0.750 at step 3" in capsys.readouterr().out


def test_a_run_with_a_teacher_tells_how_far_it_is(tmp_path, capsys):
    write(
        tmp_path, [{"domain/games/reward": 0.5, "distillation/kl": 2.0}] * RECENT + [{"distillation/kl": 0.5}] * RECENT
    )
    figure, axes = figure_for([tmp_path])
    above, below = figure.axes
    (line,) = above.lines
    assert below is axes and list(line.get_ydata()) == [2.0] * RECENT + [0.5] * RECENT
    assert main([str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert f"distance from the teacher: 2.000 in the first {RECENT} updates, 0.500 in the last {RECENT}" in told


def test_a_mean_has_only_what_came_before():
    means = recent_means([0.0] * RECENT + [1.0] * RECENT)
    assert means[RECENT - 1 :] == [number / RECENT for number in range(RECENT + 1)]
    assert recent_means([1.0, 0.0]) == [1.0, 0.5]
    assert recent_means([]) == []


def test_without_a_run_it_says_how_it_is_used(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "usage" in capsys.readouterr().err
