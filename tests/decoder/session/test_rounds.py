"""Order of a run's events, and rounds whose tokens add up to the text."""

from transformers import AutoTokenizer

from decoder.events import End, Round, Run, Start, Summary, decode_line, encode
from tests.decoder.makers import METHODS, Played, TinyModels
from tests.decoder.session.all_methods import PROMPT, TREES


def test_a_run_begins_with_run_and_ends_with_summary(played: Played) -> None:
    assert [type(event) for event in played.events].count(Run) == 1
    assert [type(event) for event in played.events].count(Summary) == 1
    assert isinstance(played.events[0], Run)
    assert isinstance(played.events[-1], Summary)


def test_the_run_says_what_was_asked(tiny_models: TinyModels, played: Played) -> None:
    (run,) = [event for event in played.events if isinstance(event, Run)]
    assert (run.prompt, run.max_new_tokens, run.device, run.dtype) == (PROMPT, 40, "cpu", "float32")
    assert run.prompt_tokens == tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    assert list(run.methods) == list(METHODS)
    assert run.methods["dynatree"]["window"] == 2
    assert run.methods["fixed"] == {"depth": 5, "branching": 2, "tau": 0.05, "n_max": 256}


def test_a_method_starts_once_then_rounds_then_ends_once(played: Played) -> None:
    for method in METHODS:
        own = [event for event in played.events if getattr(event, "method", None) == method]
        kinds = [type(event) for event in own if isinstance(event, Start | Round | End)]
        assert kinds == [Start, *[Round] * len(played.rounds(method)), End], method


def test_rounds_count_from_0_and_positions_add_up(played: Played) -> None:
    for method in METHODS:
        rounds = played.rounds(method)
        assert [event.round for event in rounds] == list(range(len(rounds))), method
        lengths = [len(event.committed) for event in rounds]
        assert [event.position for event in rounds] == [sum(lengths[:index]) for index in range(len(rounds))], method


def test_every_event_survives_the_way_to_a_file(played: Played) -> None:
    for number, event in enumerate(played.events, 1):
        if isinstance(event, Round):
            assert decode_line(encode(event), number) == event


def test_the_pieces_of_text_are_the_text(tiny_models: TinyModels, played: Played) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_models.pair("neox").target)
    prompt = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    for method in METHODS:
        whole = tokenizer.decode(prompt + played.tokens(method), skip_special_tokens=True)
        assert "".join(event.text for event in played.rounds(method)) == whole[len(PROMPT) :], method


def test_methods_without_a_tree_write_the_root_alone(tiny_models: TinyModels, played: Played) -> None:
    for method in ("ar", "hf"):
        text = [*tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)]
        for event in played.rounds(method):
            assert (event.tokens, event.parents, event.logprobs, event.accepted) == ([text[-1]], [-1], [0.0], [])
            text += event.committed


def test_a_burst_is_the_accepted_path_and_one_token_more(played: Played) -> None:
    for method in ("ar", *TREES):
        *rounds, last = played.rounds(method)
        for event in rounds:
            assert event.committed[:-1] == [event.tokens[node] for node in event.accepted], method
        path = [last.tokens[node] for node in last.accepted]
        assert last.committed == [*path, last.committed[-1]][: len(last.committed)], method


def test_the_accepted_nodes_are_a_path_from_the_root(played: Played) -> None:
    for method in TREES:
        for event in played.rounds(method):
            path = event.accepted if method == "alg1" else [0, *event.accepted]
            assert [event.parents[node] for node in path] == [-1, *path][: len(path)], method


def test_knobs_are_written_by_methods_that_have_some(played: Played) -> None:
    with_knobs = {method for method in METHODS if all(event.knobs for event in played.rounds(method))}
    without = {method for method in METHODS if not any(event.knobs for event in played.rounds(method))}
    adaptive = {"dynatree", "auto", "alg1"}
    assert (with_knobs, without) == (adaptive, {*METHODS} - adaptive)
