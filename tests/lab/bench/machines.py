"""A made-up machine description for reports that were not measured."""

from dynatui.lab.bench.machine import Machine

MACHINE = Machine(
    system="Linux",
    processor="a processor",
    cores=2,
    threads=1,
    accelerator=None,
    versions={"dynatui": "0", "torch": "2"},
    load_before=0.5,
    copy_bytes_per_s=None,
)
