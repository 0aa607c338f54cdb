"""JSON Schema, as far as the schemas in docs/ use it."""

import re


def fits(schema, value, whole) -> bool:
    """The keywords of JSON Schema that docs/*.schema.json use, read plainly from the standard's text."""
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema:
        return fits(whole["$defs"][schema["$ref"].removeprefix("#/$defs/")], value, whole)
    number = isinstance(value, int) and not isinstance(value, bool)
    is_a = {
        "object": isinstance(value, dict),
        "array": isinstance(value, list),
        "string": isinstance(value, str),
        "integer": number,
        "number": number or isinstance(value, float),
        "boolean": isinstance(value, bool),
        "null": value is None,
    }
    types = schema.get("type", list(is_a))
    rules = [
        any(is_a[one] for one in ([types] if isinstance(types, str) else types)) or "type" not in schema,
        "enum" not in schema or any(value == one and type(value) is type(one) for one in schema["enum"]),
        "const" not in schema or value == schema["const"],
        "oneOf" not in schema or sum(fits(one, value, whole) for one in schema["oneOf"]) == 1,
        "anyOf" not in schema or any(fits(one, value, whole) for one in schema["anyOf"]),
        all(fits(one, value, whole) for one in schema.get("allOf", [])),
        "not" not in schema or not fits(schema["not"], value, whole),
    ]
    if is_a["string"]:
        pattern = schema.get("pattern", "").removeprefix("^").removesuffix("$")
        rules += [not pattern or bool(re.fullmatch(pattern, value)), len(value) >= schema.get("minLength", 0)]
    if is_a["number"]:
        rules.append(schema.get("minimum", value) <= value <= schema.get("maximum", value))
        rules.append("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"])
        rules.append("exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"])
    if is_a["array"]:
        rules += [schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))]
        first = schema.get("prefixItems", [])
        rules += [fits(one, own, whole) for one, own in zip(first, value, strict=False)]
        rules += [fits(schema.get("items", True), one, whole) for one in value[len(first) :]]
    if is_a["object"]:
        own = schema.get("properties", {})
        rules.append(set(schema.get("required", [])) <= value.keys())
        rules.append(len(value) >= schema.get("minProperties", 0))
        rules += [fits(schema.get("propertyNames", True), name, whole) for name in value]
        others = schema.get("additionalProperties", True)
        rules += [fits(others, value[name], whole) for name in value.keys() - own.keys()]
        rules += [fits(own[name], value[name], whole) for name in own.keys() & value.keys()]
    if "if" in schema:
        branch = "then" if fits(schema["if"], value, whole) else "else"
        rules.append(fits(schema.get(branch, True), value, whole))
    return all(rules)
