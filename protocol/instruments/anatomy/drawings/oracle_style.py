"""The name, colour and warning of the occlusion oracle in drawings: it is not a feasible policy."""

NAME = "oracle (unreachable)"
COLOUR = "#1a1a1a"  # no arm of these drawings has this colour
WARNING = (
    "oracle-occlusion keeps the tokens that are covered by the most windows with a changed grade. It reads "
    "the labels of the same trace, which no policy can do: it is not a method, and its accuracy is not a "
    "result. It is not an upper bound either: windows are coarse, and an arm above it keeps tokens that they "
    "do not show."
)
