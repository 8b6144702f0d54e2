"""The deliberate mistakes fit the code as it is; `run.py` shows that tests notice them, which takes too long here."""

from tests.faults.run import ROOT, faults


def test_every_fault_can_be_applied() -> None:
    assert not [f"{fault.file}: {reason}" for fault in faults() if (reason := fault.stale(ROOT))]


def test_every_fault_names_a_test_that_exists() -> None:
    for fault in faults():
        path, *names = fault.test.split("::")
        text = (ROOT / path).read_text(encoding="utf-8")
        assert all(f"def {name}(" in text or f"{name} = " in text for name in names), fault.test
