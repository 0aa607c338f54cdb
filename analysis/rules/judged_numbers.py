"""Formatting of judged numbers: differences in percentage points, p with four digits."""

__all__ = ["format_interval", "format_level", "format_p", "format_points"]


def format_points(decimal: str) -> str:
    """Format accuracy points as signed percentage points, one digit; zero has no sign."""
    text = f"{100 * float(decimal):+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")


def format_interval(low: str, high: str) -> str:
    return f"[{format_points(low)}, {format_points(high)}]"


def format_p(decimal: str) -> str:
    return "<0.0001" if float(decimal) < 0.0001 else f"{float(decimal):.4f}"


def format_level(decimal: str) -> str:
    return f"{float(decimal):.5f}".rstrip("0")
