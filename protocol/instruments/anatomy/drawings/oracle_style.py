"""The name, colour and warning of the occlusion oracle in drawings: it is not a feasible policy."""

NAME = "oracle (unreachable)"
COLOUR = "#1a1a1a"  # no arm of these drawings has this colour
WARNING = (
    "oracle-occlusion keeps those tokens that the most windows with a changed grade cover. It reads the "
    "labels of this very trace, which no policy can: it is no method, and its accuracy is nobody's result. "
    "Nor is it a ceiling: windows are coarse, and an arm above it keeps what they do not show."
)
