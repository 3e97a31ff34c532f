"""Schemas made at random, for structured_suite.py: whatever is answered to one is valid for
`jsonschema`, or the schema is refused. Booleans stand where schemas may, parts refer to each
other and to the whole, and keywords stand beside each other that nobody would write so.

    random_schema(random.Random(7))  ->  {"type": "array", "items": false, "$defs": ...}
"""
LITERALS = [0, 1, -3, 2.5, "a", "fox", "", None, True, False, [1], {"a": 1}, [], {}]
PLAIN = [True, False, {}, {"type": "string", "maxLength": 4}, {"type": "integer"},
         {"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]
NAMES = ["a", "b", "c", "d"]
COUNTS = [0, 1, 2, 3]


def _schemas(r, depth, most):
    return [_schema(r, depth + 1) for _ in range(r.randint(1, most))]


def _part(r, depth):
    return r.choice([True, False, _schema(r, depth + 1), _schema(r, depth + 1)])


# Keywords by type: what each has for a value.
KEYWORDS = {
    "string": {
        "minLength": lambda r, d: r.choice(COUNTS),
        "maxLength": lambda r, d: r.choice(COUNTS) + 1,
        "pattern": lambda r, d: r.choice(["^[a-c]+$", "b", "^a|c$", "^(ab|c){1,2}$", "^\\w*-\\d?$"]),
        "format": lambda r, d: r.choice(["date", "uuid", "ipv4", "ipv6", "email", "other"]),
    },
    "number": {
        "minimum": lambda r, d: r.choice([0, -5, 2.5, 10]),
        "maximum": lambda r, d: r.choice([0, 5, 99]),
        "exclusiveMinimum": lambda r, d: r.choice([0, 3]),
        "exclusiveMaximum": lambda r, d: r.choice([7, 0.5]),
        "multipleOf": lambda r, d: r.choice([1, 2, 5, 7, 16, 0.5, 0.25]),
    },
    "array": {
        "items": _part,
        "prefixItems": lambda r, d: _schemas(r, d, 2),
        "unevaluatedItems": _part,
        "contains": _part,
        "minContains": lambda r, d: r.choice(COUNTS),
        "maxContains": lambda r, d: r.choice(COUNTS) + 1,
        "minItems": lambda r, d: r.choice(COUNTS),
        "maxItems": lambda r, d: r.choice(COUNTS) + 1,
        "uniqueItems": lambda r, d: r.choice([True, False]),
    },
    "object": {
        "properties": lambda r, d: {name: _part(r, d) for name in r.sample(NAMES, 2)},
        "required": lambda r, d: r.sample(NAMES, r.randint(0, 2)),
        "additionalProperties": _part,
        "unevaluatedProperties": _part,
        "propertyNames": lambda r, d: r.choice([True, False, {"maxLength": 3}, {"enum": NAMES}]),
        "minProperties": lambda r, d: r.choice(COUNTS),
        "maxProperties": lambda r, d: r.choice(COUNTS) + 1,
        "patternProperties": lambda r, d: r.choice([{}, {"^a": False}, {"^[ab]": _part(r, d)},
                                                    {"^a": _part(r, d), "c|d": _part(r, d)}]),
        "dependentRequired": lambda r, d: r.choice([{}, {"a": ["b"]}, {"a": ["b"], "c": ["a"]}]),
        "dependentSchemas": lambda r, d: {r.choice(NAMES): _part(r, d)},
        "dependencies": lambda r, d: {r.choice(NAMES): r.choice([["b"], ["c", "a"]])},
    },
}
KEYWORDS["integer"] = KEYWORDS["number"]
ANY_TYPE = {
    "anyOf": lambda r, d: _schemas(r, d, 3),
    "allOf": lambda r, d: _schemas(r, d, 3),
    "oneOf": lambda r, d: _schemas(r, d, 3),
    "not": lambda r, d: r.choice([False, True, {"type": "null"}, {"type": ["string", "array"]},
                                  {"type": "integer"}, {"enum": [1, "a"]}, {"required": ["a"]},
                                  _schema(r, d + 1)]),
    "if": _part,
    "then": _part,
    "else": _part,
    "enum": lambda r, d: r.sample(LITERALS, 3),
    "const": lambda r, d: r.choice(LITERALS),
    "$ref": lambda r, d: r.choice(["#/$defs/A", "#/$defs/B", "#"]),
}


def _schema(r, depth):
    if depth > 3 or r.random() < 0.1:
        return r.choice(PLAIN)
    kind = r.choice(["string", "integer", "number", "boolean", "null", "array", "object", "array",
                     "object", None])
    schema = {}
    if kind is not None:
        schema["type"] = kind if r.random() < 0.85 else [kind, r.choice(["null", "string"])]
    keywords = dict(KEYWORDS.get(kind, {}))
    if kind is None:
        keywords = {name: make for row in KEYWORDS.values() for name, make in row.items()}
    for name in r.sample(sorted(keywords), min(len(keywords), r.randint(0, 3))):
        schema[name] = keywords[name](r, depth)
    if r.random() < 0.3:
        name = r.choice(sorted(ANY_TYPE))
        schema[name] = ANY_TYPE[name](r, depth)
        if name == "if":
            for more in ("then", "else"):
                if r.random() < 0.7:
                    schema[more] = ANY_TYPE[more](r, depth)
    return schema


def random_schema(r):
    schema = _schema(r, 0)
    if isinstance(schema, bool):
        schema = {"items": schema}
    return {**schema, "$defs": {"A": _schema(r, 2), "B": _schema(r, 2)}}
