"""Claims as data: expressions over named values, and pages from templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jinja2.exceptions import SecurityError, UndefinedError

from octavo.base.errors import UsageError
from octavo.studies import claims, page
from octavo.studies.claims import Claim, Found, load_claims


def claim(of: str, agrees: str, ours: str = "") -> Claim:
    return Claim("fall", "it falls", "to a tenth", of, agrees, ours=ours)


@pytest.mark.parametrize(
    ("agrees", "expected"),
    [
        ("0.1 <= mean(of) <= 0.3", True),
        ("0.1 <= mean(of) < 0.2", False),
        ("abs(of[0] - limit) <= 0.25 * limit and not any([of[1] > 1, limit > 1])", True),
        ("count_between(of, 0.1, 0.2) == len(of)", False),
        ("all([min(of) == 0.1, max(of) == 0.3]) or limit < 0", True),
    ],
)
def test_an_expression_decides(agrees: str, expected: bool) -> None:
    found = claim("falls", agrees, "{{ of[0] | format('.0%') }} of {{ 4096 | bytes }}").find(
        {"falls": [0.1, 0.3], "limit": 0.1}
    )
    assert found == Found("10% of 4 KiB", expected)


@pytest.mark.parametrize("value", [None, [], ()])
def test_a_claim_without_values_is_undecided(value: Any) -> None:
    assert claim("falls", "of < 1").find({"falls": value}) is None
    assert claim("falls", "of < 1").find({"falls": 0}) == Found("", True)


@pytest.mark.parametrize(("value", "tested"), [(None, ""), ([], ""), ([0.5], "then 0.5 of 2")])
def test_the_result_of_an_experiment_is_given_if_it_was_made(value: Any, tested: str) -> None:
    texts = {"test": "without_it", "tested": "then {{ test[0] }} of {{ of }}"}
    one = Claim("fall", "it falls", "to a tenth", "falls", "of < 1", **texts)
    assert one.find({"falls": 2, "without_it": value}) == Found("", False, tested=tested)


def test_the_page_shows_the_experiment_of_a_claim_that_differs() -> None:
    one = Claim("fall", "it falls", "to a tenth", "falls", "of < 1", where="table 1")
    macro = "{% import 'shared.md' as shared %}{{ shared.claims_text(claims) }}"
    for agrees in (True, False):
        found = Found("2", agrees, "small", "with more it is 0.5")
        text = claims.environment().from_string(macro).render(claims=[(one, found)])
        assert ("Possible cause: small.\n   Tested: with more it is 0.5." in text) is not agrees
        assert claims.claims_document([(one, found)])[0]["tested"] == "with more it is 0.5"


@pytest.mark.parametrize("where", ["of", "ours", "agrees"])
def test_an_unknown_name_is_an_error_that_names_the_nearest(where: str) -> None:
    texts = {"of": "falls", "agrees": "of < 1", "ours": ""}
    texts[where] = "{{ fals }}" if where == "ours" else "fals"
    with pytest.raises(UsageError, match=r"name in the claim fall `fals`; did you mean `falls`\?"):
        claim(**texts).find({"falls": 0.1})


def test_an_unknown_part_of_a_value_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="has no attribute 'tsp'"):
        claim("falls.tsp", "of < 1").find({"falls": {"tps": 0.1}})


def test_expressions_reach_nothing_but_values() -> None:
    with pytest.raises(SecurityError):
        claim("falls", "of.__class__.__mro__").find({"falls": 0.1})


def test_every_claim_of_every_study_is_complete() -> None:
    studies = sorted(path.parent.name for path in Path(claims.__file__).parent.glob("*/study.toml"))
    assert "base_page_size" in studies
    for study in studies:
        for each in load_claims(study):
            place = (study, each.key)
            assert each.paper, place
            assert each.line, place
            assert not each.paper.endswith("."), place
            if study != "base_page_size":
                assert each.where, place
                assert each.ours, place
                assert each.why, place


def test_rows_of_a_page_become_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "# Head\n\n\n| a | b |\n{% for n in of %}\n| {{ n }} | {{ n }}0 |\n{% endfor %}\nend"
    template = claims.environment().from_string(source)
    monkeypatch.setattr(claims.environment(), "get_template", lambda name: template)
    assert page.render_page("base_page_size", of=[1, 222]) == (
        "# Head\n\n| a   |    b |\n| --- | ---: |\n| 1   |   10 |\n| 222 | 2220 |\nend\n"
    )
