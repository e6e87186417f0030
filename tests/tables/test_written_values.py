"""Numbers and dates as people write them; what a column cannot settle is said."""

import datetime

import numpy as np
import pandas as pd
import pytest

from everwide.tables import encode_frame, read_table

pytestmark = pytest.mark.once

NUMBERS = {
    "dollars": (["$1,234.56", "$5", "-$3.50", "$ 12"], [1234.56, 5, -3.5, 12]),
    "thousands": (["1,234", "999", "12,345,678", "5"], [1234, 999, 12345678, 5]),
    "decimal commas": (["1.234,56", "1.234", "12,5", "7"], [1234.56, 1234, 12.5, 7]),
    "commas that a short fraction settles": (["1,234", "0,5", "3,14", "2"], [1.234, 0.5, 3.14, 2]),
    "commas that a zero settles": (["0,125", "1,250", "3,500", "2"], [0.125, 1.25, 3.5, 2]),
    "euros with points for thousands": (["1.234 €", "999 €", "12.000 €", "5 €"], [1234, 999, 12000, 5]),
    "fractions of three digits": (["1.234 kg", "0.500 kg", "2.250 kg", "3.125 kg"], [1.234, 0.5, 2.25, 3.125]),
    "percent": (["12.5%", "3 %", "0%", "100%"], [12.5, 3, 0, 100]),
    "a unit": (["3.2 kg", "4 Kg", "5", "6.25kg"], [3.2, 4, 5, 6.25]),
    "more than one room": (["1 room", "2 rooms", "3 rooms", "10 rooms"], [1, 2, 3, 10]),
    "square metres": (["50 m²", "60.5 m²", "7 m²", "8 m²"], [50, 60.5, 7, 8]),
    "speeds": (["50 km/h", "60.5 km/h", "7 km/h", "8 km/h"], [50, 60.5, 7, 8]),
    "bookkeeping": (["(1,234)", "5,000", "(7)", "8"], [-1234, 5000, -7, 8]),
    "spaces and apostrophes": (["1 234,5", "1'000", "12 000", "5"], [1234.5, 1000, 12000, 5]),
    "lakhs": (["12,34,567", "1,234", "99", "1,00,000"], [1234567, 1234, 99, 100000]),
    "another minus": (["\u22125 K", "6 K", "\u22127 K", "8 K"], [-5, 6, -7, 8]),
    "powers of ten": (["1e3 m", "2.5E-1 m", "7 m", "8 m"], [1000, 0.25, 7, 8]),
    "currencies by name": (["EUR 5", "EUR 1,000.50", "EUR 7", "EUR 8"], [5, 1000.5, 7, 8]),
}
NO_NUMBERS = {
    "several units": ["3.2 kg", "4 lb", "5 kg", "6 lb"],
    "flats": ["1a", "1b", "2a", "2b"],
    "versions": ["1.2.3", "1.2.4", "1.3.0", "2.0.0"],
    "addresses": ["1 Main St", "2 Main St", "3 Main St", "4 High St"],
    "ranges": ["0-5", "6-10", "11-20", "21-50"],
    "names with numbers": ["z1", "z2", "z3", "z4"],
    "groups of two digits": ["12,34,5", "1,23", "1,2,3", "9,9,9"],
}


def column(values, times=4):
    frame = pd.DataFrame({"v": list(values) * times, "z": np.arange(times * len(values)) ** 2.0})
    return encode_frame(frame)


@pytest.mark.parametrize(("written", "expected"), NUMBERS.values(), ids=NUMBERS)
def test_numbers(written, expected):
    encoder, x = column(written)
    assert encoder.names == ("v", "z")
    np.testing.assert_array_equal(x[: len(expected), 0], expected)
    assert encoder.notes == ("Numbers were read without their signs of money, thousands, percent or units: v.",), (
        "plain numbers need no note, and these are not plain"
    )


@pytest.mark.parametrize("written", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_what_is_no_number_is_a_category(written):
    encoder, x = column(written)
    assert encoder.names[:-1] == tuple(f"v={level}" for level in sorted(written))
    np.testing.assert_array_equal(x[:4, :4].sum(0), 1)
    assert any("Numbers of several units" in text for text in encoder.notes) == (written[0] in ("3.2 kg", "1a"))


def test_the_form_is_that_of_the_training_rows():
    encoder, _ = column(["1.234,56", "7,5", "8", "9"])
    np.testing.assert_array_equal(
        encoder.transform(pd.DataFrame({"v": ["1.234", "2"], "z": [0.0, 1.0]}))[:, 0], [1234, 2]
    )


def test_slips_among_numbers_are_missing():
    encoder, x = column([f"${n}" for n in range(1, 20)] + ["ask"])
    assert encoder.names == ("v", "v is missing", "z")
    assert (x[19, 0], x[19, 1], x[:, 1].sum()) == (10, 1, 4)
    assert "Texts among numbers were taken as missing: v." in encoder.notes


DAYS = [datetime.date(2021, 1, 31), datetime.date(2021, 2, 1), datetime.date(2021, 2, 3), datetime.date(2020, 12, 5)]
DATES = {
    "days first": "%d/%m/%Y",
    "months first": "%m/%d/%Y",
    "points": "%d.%m.%Y",
    "dashes": "%d-%m-%Y",
    "two digits of a year": "%d/%m/%y",
    "names of months": "%d %b %Y",
    "whole names": "%d %B %Y",
    "American": "%B %d, %Y",
    "databases": "%d-%b-%Y",
    "letters": "%a, %d %b %Y",
    "ISO": "%Y-%m-%d",
    "slashes": "%Y/%m/%d",
    "with a time": "%Y-%m-%d 10:00",
    "to the second, in a zone": "%Y-%m-%dT12:00:00+02:00",
    "in the afternoon": "%d/%m/%Y 10:00 PM",
}


@pytest.mark.parametrize("form", DATES.values(), ids=DATES)
def test_dates(form):
    encoder, x = column([day.strftime(form) for day in DAYS], times=3)
    assert encoder.names == ("v", "z")
    np.testing.assert_allclose(x[:4, 0], [(day - DAYS[3]).days for day in DAYS], atol=1e-9)
    assert encoder.notes == ("Dates became numbers of days since the earliest: v.",)


def test_times_are_parts_of_a_day():
    _, x = column(["2021-01-31 06:00", "2021-01-31T18:00Z", "2021-01-31 12:00:00.0+06:00", "31 Jan 2021 6:00 pm"])
    np.testing.assert_allclose(x[:4, 0], [0, 0.5, 0, 0.5], atol=1e-9)


@pytest.mark.parametrize(
    "written", [["01/02/2021", "03/04/2021"], ["31/01/2021", "01/31/2021"], ["1/2/21 10:00", "3/4/21 11:00"]]
)
def test_dates_that_nothing_settles_are_said(written):
    encoder, _ = column(written)
    assert encoder.names == ("z",)
    assert encoder.notes == ("Dropped, as their dates can be read in two ways (write 2024-12-31): v.",)


def test_points_settle_dates_that_slashes_do_not():
    assert column(["01.02.2021", "03.04.2021"])[1][:2, 0].tolist() == [0, 61]


def test_days_that_no_calendar_has_are_missing():
    encoder, x = column(["2021-02-30", *(f"2021-01-{day:02d}" for day in range(1, 20))])
    assert (encoder.names[0], encoder.names[-2]) == ("v", "v is missing")
    assert (x[0, 0], x[0, -2], x[:, -2].sum()) == (9, 1, 4)


def calendar(days):
    frame = pd.DataFrame({"v": days, "z": np.arange(len(days)) ** 2.0})
    encoder, x = encode_frame(frame)
    return encoder.names, x, encoder


def test_parts_of_the_calendar_that_come_again():
    names, x, encoder = calendar(pd.date_range("2021-01-01", periods=1000, freq="D"))
    assert [name for name in names if "(" in name] == ["v: time of year (sin)", "v: time of year (cos)"]
    week = x[:, [names.index(f"v={day}") for day in ("Monday", "Sunday")]]
    numbers = (np.arange(1000) + 4) % 7  # it was a Friday
    np.testing.assert_array_equal(week, numbers[:, None] == [0, 6])
    year = x[:, names.index("v: time of year (cos)")]
    assert np.abs(year[365:] - year[:-365]).max() < 0.02
    assert set(encoder.source[:-1]) == {0}
    np.testing.assert_array_equal(encoder.indicator, ["=" in name for name in names])


def test_hours_that_come_again():
    names, x, _ = calendar(pd.date_range("2021-01-01", periods=200, freq="h"))
    assert [name for name in names if "(" in name] == ["v: time of day (sin)", "v: time of day (cos)"]
    np.testing.assert_allclose(x[6, 1:3], [1, 0], atol=1e-9)


@pytest.mark.parametrize("days", [["2021-01-01", "2021-03-01"] * 4, pd.date_range("2021-01-01", periods=10, freq="D")])
def test_parts_that_never_come_again_tell_no_more_than_the_date(days):
    assert calendar(pd.to_datetime(days))[0] == ("v", "z")


def test_spans_periods_and_zones():
    frame = pd.DataFrame(
        {
            "span": pd.to_timedelta([36, 12] * 3, unit="h"),
            "period": pd.period_range("2021-01", periods=6, freq="M"),
            "zone": pd.date_range("2021-01-01 23:00", periods=6, freq="D", tz="Asia/Tokyo"),
        }
    )
    encoder, x = encode_frame(frame)
    assert encoder.names == ("span", "period", "zone")
    np.testing.assert_allclose(x[:3], [[1.5, 0, 0], [0.5, 31, 1], [1.5, 59, 2]])
    np.testing.assert_array_equal(encoder.transform(frame), x)


def test_a_file_of_all_this(tmp_path):
    rng = np.random.default_rng(0)
    lines = [
        f'{day:%d/%m/%Y},"${price:,.2f}",{share:.1f}%,{weight:.1f} kg,{"" if number % 7 else "?"},"{price * 2:,.0f}"'
        for number, (day, price, share, weight) in enumerate(
            zip(
                pd.date_range("2021-01-05", periods=40, freq="D"),
                rng.uniform(900, 5000, 40),
                rng.uniform(0, 100, 40),
                rng.uniform(1, 9, 40),
                strict=True,
            )
        )
    ]
    (tmp_path / "orders.csv").write_text("day,price,share,weight,empty,total\n" + "\n".join(lines))
    table = read_table(tmp_path / "orders.csv")
    assert (table.names[0], table.names[-3:], table.task) == ("day", ("price", "share", "weight"), "regression")
    np.testing.assert_allclose(table.y, 2 * table.x[:, -3], atol=0.6)
    assert any("hold no values: empty" in note for note in table.notes)


RUBBISH = [
    "",
    "?",
    "N/A",
    "1,2,3",
    "--",
    "$",
    "%",
    "12/34/5678",
    "0x1F",
    "1e999",
    "नमस्ते",
    "\u202e5",
    "=1+1",
    "'; --",
    "[1, 2]",
]


@pytest.mark.parametrize("seed", range(8))
def test_rubbish_of_all_kinds_is_read_or_named(tmp_path, seed):
    rng = np.random.default_rng(seed)
    good = ["31/01/2021", "$5.00", "3 kg", "12%", "red", "5", "1.234,5", "2021-01-31", "10:30", "1 Jan 2021"]
    frame = pd.DataFrame(
        {
            f"c{number}": rng.choice(rng.choice(RUBBISH + good, size=1 + number, replace=False), 60)
            for number in range(8)
        }
    )
    encoder, x = encode_frame(frame.assign(z=rng.normal(size=60)))
    assert np.isfinite(x).all()
    assert x.shape == (60, len(encoder.names)) == (60, len(encoder.source))
    told, used = " ".join(encoder.notes), set(encoder.source)
    assert all(number in used or f"c{number}" in told or "more" in told for number in range(8))
    np.testing.assert_array_equal(encoder.transform(frame.assign(z=x[:, -1])), x)
    frame.assign(y=rng.normal(size=60)).to_csv(tmp_path / "rubbish.csv", index=False)
    assert np.isfinite(read_table(tmp_path / "rubbish.csv").x).all()


def test_dates_and_spans_of_arrow():
    arrow = pytest.importorskip("pyarrow")
    days = pd.Series(pd.date_range("2021-01-01", periods=40, freq="10D"))
    for kind in ("timestamp[ns][pyarrow]", pd.ArrowDtype(arrow.timestamp("us", "UTC"))):
        known, x = encode_frame(pd.DataFrame({"day": days}))
        same, again = encode_frame(
            pd.DataFrame(
                {"day": (days if kind == "timestamp[ns][pyarrow]" else days.dt.tz_localize("UTC")).astype(kind)}
            )
        )
        assert same.names == known.names
        np.testing.assert_array_equal(again, x)
    spans = pd.DataFrame({"span": (days - days[0]).astype("duration[ns][pyarrow]")})
    np.testing.assert_array_equal(encode_frame(spans)[1], 10.0 * np.arange(40)[:, None])


@pytest.mark.parametrize("slip", ["-", "n.a.", "?"])
def test_rare_slips_among_dates_that_hardly_repeat(slip):
    """Slips are one value of many rows, dates are many values of one row each: rows count."""
    times = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(1500) * 7919, unit="s")
    written = pd.Series(times.strftime("%Y-%m-%d %H:%M:%S")).astype(object)
    written[::30] = slip
    encoder, x = encode_frame(pd.DataFrame({"when": written}))
    assert encoder.names[0] == "when"
    missing = x[:, encoder.names.index("when is missing")]
    np.testing.assert_array_equal(missing == 1, np.arange(1500) % 30 == 0)
    np.testing.assert_allclose(x[1:5, 0] - x[1, 0], np.arange(4) * 7919 / 86400, rtol=1e-9)


def test_a_rare_slip_among_few_dates():
    dates = ["31/01/2021", "28/02/2021"] * 20 + ["n.a."] * 2
    encoder, x = encode_frame(pd.DataFrame({"day": dates}))
    assert encoder.names == ("day", "day is missing")
    assert x[:2, 0].tolist() == [0.0, 28.0]
