"""What Airflow's page says of a manifest: its label, the first lines of its log, and the note of its run."""

from tidemark.airflow.log_lines import begins, label
from tidemark.airflow.run_notes import LONGEST_NOTE, note_of
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.order import Order, SourceOrder


def ranges(topic: str, count: int) -> list[Range]:
    return [Range(TopicPartition(topic, "id", number), 100 * number, 100 * number + 50) for number in range(count)]


def test_a_label_names_each_topic_once_and_every_range() -> None:
    text = label(7, [*ranges("flights", 2), *ranges("orders", 1)])
    assert text == "manifest 7 flights 0:[0, 50) 1:[100, 150) orders 0:[0, 50)"
    assert label(7, []) == "manifest 7"


def test_a_label_fits_airflow_and_says_that_it_is_cut() -> None:
    text = label(7, ranges("flights", 1000))
    assert len(text) == 200
    assert text.startswith("manifest 7 flights 0:[0, 50) ")
    assert text.endswith(" ..")


def test_a_log_begins_with_manifest_attempt_page_ranges_and_output() -> None:
    order = Order("demo", 7, 2, tuple(ranges("flights", 2)), SourceOrder("kafka", {}), {}, {}, "fail", ())
    page = "https://example.org/tidemark/pipelines/demo/manifests/7"
    assert begins(order, ["/lake", "warehouse/public.flights"], page) == [
        "pipeline demo manifest 7 attempt 2 begins: 100 offsets in 2 ranges",
        f"page: {page}",
        "range flights-0 [0, 50)",
        "range flights-1 [100, 150)",
        "output to /lake",
        "output to warehouse/public.flights",
    ]


def test_a_log_of_many_ranges_says_where_the_others_are() -> None:
    order = Order("demo", 7, 2, tuple(ranges("flights", 20)), SourceOrder("kafka", {}), {}, {}, "fail", ())
    lines = begins(order, [], None)
    assert len(lines) == 10
    assert lines[-1] == "and 12 more ranges: tidemark show 7"


def test_a_note_has_its_links_whole_below_its_text_and_as_many_as_fit() -> None:
    links = [f"manifest {number}: https://example.org/{'x' * 150}" for number in range(4)]
    assert note_of("", links[:2]) == "\n".join(links[:2])
    assert note_of("unfinished", []) == "unfinished"
    assert note_of("unfinished", links[:1]) == f"unfinished\n\n{links[0]}"
    for length in (1, 400, 499, 500, 501, 999, 1000, 5000):
        note = note_of("x" * length, links)
        text, *below = note.split("\n")
        assert len(note) <= LONGEST_NOTE
        assert below[0] == ""
        assert below[1:] == links[: len(below) - 1]
        assert len(below) - 1 >= 2
        assert text == "x" * length or (len(text) >= 490 and text.endswith(" .."))
    assert note_of("x", ["y" * LONGEST_NOTE]) == "x"
