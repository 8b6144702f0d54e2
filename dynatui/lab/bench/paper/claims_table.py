"""Table of the paper's claims: verdicts, measured quotients, and the paper's quotients with remarks on them."""

from collections.abc import Sequence

from dynatui.lab.bench.paper.claims import Claim
from dynatui.lab.bench.paper.printed import explained, marks
from dynatui.lab.tables.data import Cell, Column, Printed, Table

COLUMNS = (
    Column("the paper says"),
    Column("data"),
    Column("verdict"),
    Column("here", "measured", 3),
    Column("paper", "paper", 3),
    Column("must be"),
    Column("tested by"),
    Column("source"),
)
WHAT = (
    "Losslessness is tested by the share of texts that equal the text of ar. Every other claim is tested by a quotient "
    "of two figures on the same prompts; it gets a verdict only if the quotient's 95 % interval lies on one side of "
    "the limit."
)


def claims_table(claims: Sequence[Claim], notes: Sequence[str], left_out: str | None = None) -> Table:
    """Table of the paper's claims, with one row for each claim.

    Args:
        claims: Claims with their results.
        notes: Notes under the table; they follow the remarks on the paper's numbers.
        left_out: Reason why no claim is judged; None if claims are judged.
    """
    known = marks(claim.doubt for claim in claims)
    return Table(
        name="claims",
        title="The paper's claims",
        what=left_out or WHAT,
        columns=COLUMNS,
        rows=tuple(_row(claim, known[claim.doubt]) for claim in claims),
        notes=(*explained(known), *notes),
    )


def _row(claim: Claim, mark: str) -> tuple[Cell, ...]:
    paper = None if claim.paper is None else Printed(value=claim.paper, source=claim.source, mark=mark)
    limit = f"{'under' if claim.below else 'over'} {claim.limit:g}" if claim.by_quotient else "1"
    return claim.says, claim.data_set, claim.verdict, claim.here, paper, limit, claim.tested, claim.source
