"""Answers with a given form, as `instructor`, pydantic and the vendors' packages ask for them,
against our server: run by run.py. Each value is checked by `jsonschema`, which knows nothing of
our grammars. Sampled hot, so that what a schema does not forbid comes."""
import datetime
import enum
import ipaddress
import json
import os
import random
import typing
import unittest
import uuid
import warnings

import anthropic
import instructor
import jsonschema
import ollama
import openai
import pydantic

from random_schemas import random_schema

URL = os.environ["KTX_URL"]
openai_client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
anthropic_client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
ollama_client = ollama.Client(host=URL)
MODEL = "qwen3moe"
SEEDS = (1, 2, 3)


def fox():
    """A new list each time: instructor writes into it."""
    return [{"role": "user", "content": "Tell me a story about a fox."}]


class Kind(str, enum.Enum):
    FOX = "fox"
    HARE = "hare"


class Place(pydantic.BaseModel):
    city: str = pydantic.Field(max_length=8)
    zip: typing.Optional[int] = None


class Sighting(pydantic.BaseModel):
    kind: Kind
    certain: bool


class Trip(pydantic.BaseModel):
    kind: Kind
    start: Place
    stops: list[Place] = pydantic.Field(max_length=2)
    pair: tuple[bool, int]


class Node(pydantic.BaseModel):
    value: bool
    next: typing.Optional["Node"]


class Now(pydantic.BaseModel):
    pass


class Circle(pydantic.BaseModel):
    shape: typing.Literal["circle"]
    radius: int = pydantic.Field(ge=1, le=9)


class Square(pydantic.BaseModel):
    shape: typing.Literal["square"]
    side: int = pydantic.Field(gt=0, lt=50)


class Drawing(pydantic.BaseModel):
    shape: typing.Annotated[typing.Union[Circle, Square], pydantic.Field(discriminator="shape")]


class Everyday(pydantic.BaseModel):
    """pydantic reads the values more strictly than their schema says: real dates, addresses."""
    day: datetime.date
    at: datetime.datetime
    time: datetime.time
    took: datetime.timedelta
    key: uuid.UUID
    url: pydantic.AnyUrl
    four: ipaddress.IPv4Address
    six: ipaddress.IPv6Address
    kinds: set[Kind]
    counts: dict[Kind, int]
    code: str = pydantic.Field(pattern=r"^[A-Z]{2}-[a-z]+$", min_length=5, max_length=9)
    fives: int = pydantic.Field(multiple_of=5, ge=0, le=10000)
    sevens: int = pydantic.Field(multiple_of=7, gt=0, lt=100)
    share: float = pydantic.Field(gt=0, le=1)


CLASSES = (Trip, Node, Now, Drawing)


def check(schema, value):
    jsonschema.Draft202012Validator(schema).validate(value)


def tool(cls, **more):
    return {"type": "function", "function": {
        "name": cls.__name__, "parameters": cls.model_json_schema(), **more}}


def ask(**more):
    more = {"temperature": 1.3, "max_tokens": 600, "messages": fox(), "model": MODEL, **more}
    return openai_client.chat.completions.create(**more)


class Instructor(unittest.TestCase):
    """Parsing fails where an answer is not of the class: these calls raise then."""

    def create(self, mode, cls, seed):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            client = instructor.from_openai(openai_client, mode=mode)
        return client.chat.completions.create(model=MODEL, messages=fox(), response_model=cls,
                                              max_retries=0, temperature=1.3, seed=seed,
                                              max_tokens=600)

    def test_tools_and_schemas(self):
        for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
            for cls in (Trip, Drawing):
                for seed in SEEDS:
                    self.assertIsInstance(self.create(mode, cls, seed), cls)

    def test_the_first_form_of_tools_is_refused_clearly(self):
        with self.assertRaisesRegex(Exception, "send 'tools'"):
            self.create(instructor.Mode.FUNCTIONS, Trip, 1)


class OpenAi(unittest.TestCase):
    def test_forced_calls_fit_their_schema(self):
        for cls in CLASSES:
            for choice in ("required", {"type": "function", "function": {"name": cls.__name__}}):
                for seed in SEEDS:
                    choice_made = ask(tools=[tool(cls)], tool_choice=choice,
                                      seed=seed).choices[0]
                    if choice_made.finish_reason == "length" and cls is Node:
                        continue  # a list without an end
                    self.assertEqual(choice_made.finish_reason, "tool_calls")
                    call = choice_made.message.tool_calls[0].function
                    self.assertEqual(call.name, cls.__name__)
                    check(cls.model_json_schema(), json.loads(call.arguments))

    def test_calls_without_parameters_have_none(self):
        for parameters in (None, {}, {"type": "object"}, {"type": "object", "properties": {}},
                           Now.model_json_schema()):
            function = {"name": "now"}
            if parameters is not None:
                function["parameters"] = parameters
            for seed in SEEDS:
                answer = ask(tools=[{"type": "function", "function": function}], seed=seed,
                             tool_choice="required")
                call = answer.choices[0].message.tool_calls[0].function
                self.assertEqual(call.arguments, "{}", parameters)
        nothing = ask(tools=[{"type": "function", "function": {"name": "now", "parameters": None}}],
                      tool_choice="required")
        self.assertEqual(json.loads(nothing.choices[0].message.tool_calls[0].function.arguments),
                         {})

    def test_definitions_of_one_name_do_not_mix(self):
        def with_place(kind):
            return {"$defs": {"Place": {"type": "array", "items": kind, "maxItems": 2}},
                    "type": "object", "properties": {"p": {"$ref": "#/$defs/Place"}},
                    "required": ["p"], "additionalProperties": False}
        schemas = {"weather.in/city": with_place({"enum": ["a", "b"]}),
                   'odd "name" 你好': with_place({"type": "boolean"}),
                   "numbers": with_place({"type": "integer", "minimum": 0, "maximum": 99})}
        tools = [{"type": "function", "function": {"name": name, "parameters": schema,
                                                   "strict": True}}
                 for name, schema in schemas.items()]
        seen = set()
        for seed in range(12):
            call = ask(tools=tools, tool_choice="required", seed=seed, temperature=2.0,
                       parallel_tool_calls=False).choices[0].message.tool_calls[0].function
            check(schemas[call.name], json.loads(call.arguments))
            seen.add(call.name)
        for name in schemas:
            choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
                {"type": "function", "function": {"name": name}}]}}
            call = ask(tools=tools, tool_choice=choice).choices[0].message.tool_calls[0].function
            self.assertEqual(call.name, name)
            check(schemas[name], json.loads(call.arguments))

    def test_a_cut_call_is_a_part_of_a_call(self):
        for stream in (False, True):
            answer = ask(tools=[tool(Trip)], tool_choice="required", max_tokens=20, stream=stream)
            if stream:
                chunks = [chunk.choices[0] for chunk in answer if chunk.choices]
                calls = [call for choice in chunks for call in choice.delta.tool_calls or []]
                text = "".join(choice.delta.content or "" for choice in chunks)
                name, reason = calls[0].function.name, chunks[-1].finish_reason
                arguments = "".join(call.function.arguments or "" for call in calls)
            else:
                choice = answer.choices[0]
                text, reason = choice.message.content or "", choice.finish_reason
                name = choice.message.tool_calls[0].function.name
                arguments = choice.message.tool_calls[0].function.arguments
            self.assertEqual((text, name, reason), ("", "Trip", "length"))
            self.assertTrue(arguments.startswith("{"), arguments)
        self.assertEqual(ask(tools=[tool(Trip)], tool_choice="required",
                             max_tokens=2).choices[0].message.content or "", "")

    def test_parsed_answers(self):
        for cls in (Trip, Drawing):
            answer = openai_client.chat.completions.parse(
                model=MODEL, messages=fox(), temperature=1.3, max_tokens=600, response_format=cls)
            self.assertIsInstance(answer.choices[0].message.parsed, cls)
            answer = openai_client.responses.parse(
                model=MODEL, input=fox(), temperature=1.3, max_output_tokens=600, text_format=cls)
            self.assertIsInstance(answer.output_parsed, cls)
        called = openai_client.chat.completions.parse(
            model=MODEL, messages=fox(), temperature=1.3, max_tokens=600, tool_choice="required",
            tools=[openai.pydantic_function_tool(Trip)])
        self.assertIsInstance(called.choices[0].message.tool_calls[0].function.parsed_arguments,
                              Trip)
        answer = openai_client.responses.create(
            model=MODEL, input=fox(), max_output_tokens=600, temperature=1.3,
            tool_choice={"type": "function", "name": "Trip"},
            tools=[{"type": "function", "name": "Trip", "strict": True,
                    "parameters": Trip.model_json_schema()}])
        Trip.model_validate_json(answer.output[0].arguments)

    def test_everyday_values_are_what_they_say(self):
        schema, ended = Everyday.model_json_schema(), 0
        for seed in range(8):
            choice = ask(seed=seed, max_tokens=1500, extra_body={"guided_json": schema}).choices[0]
            if choice.finish_reason == "stop":
                ended += 1
                check(schema, json.loads(choice.message.content))
                Everyday.model_validate_json(choice.message.content)
        self.assertGreater(ended, 2)

    def test_every_field_for_a_form_is_honoured(self):
        schema = Trip.model_json_schema()
        bodies = [{"guided_json": schema}, {"guided_json": json.dumps(schema)},
                  {"structured_outputs": {"json": schema}}, {"json_schema": schema},
                  {"response_format": {"type": "json_object", "schema": schema}},
                  {"response_format": {"type": "json_schema", "json_schema": {
                      "name": "trip", "schema": schema, "strict": False}}}]
        for body in bodies:
            content = ask(extra_body=body).choices[0].message.content
            check(schema, json.loads(content))
            plain = openai_client.completions.create(model=MODEL, prompt="Once", max_tokens=600,
                                                     temperature=1.3, extra_body=body)
            check(schema, json.loads(plain.choices[0].text))
        for body in ({"guided_regex": "[a-c]{2,5}-\\d"}, {"regex": "^[a-c]{2,5}-\\d$"},
                     {"structured_outputs": {"regex": "[a-c]{2,5}-\\d"}}):
            self.assertRegex(ask(extra_body=body).choices[0].message.content,
                             r"\A[a-c]{2,5}-\d\Z")
        for body in ({"guided_choice": ["yes", "no", "näh"]},
                     {"structured_outputs": {"choice": ["yes", "no", "näh"]}},
                     {"guided_grammar": 'root ::= "yes" | "no" | "näh"'},
                     {"structured_outputs": {"grammar": 'root ::= "yes" | "no" | "näh"'}}):
            self.assertIn(ask(extra_body=body).choices[0].message.content, ("yes", "no", "näh"))

    def test_what_cannot_be_kept_is_refused(self):
        bad = {"type": "object", "properties": {"a": {"$dynamicRef": "#a"}}}
        bodies = [{"guided_json": bad}, {"structured_outputs": {"json": bad}},
                  {"structured_outputs": {"jsn": {}}}, {"guided_json": 3}, {"guided_choice": []},
                  {"guided_regex": "(?=a)"}, {"guided_whitespace_pattern": " *"},
                  {"guided_json": {}, "guided_regex": "a"}, {"functions": [{"name": "f"}]},
                  {"response_format": "json"}, {"response_format": {"type": "json_schema"}},
                  {"response_format": {"type": "json_schema", "schema": bad}},
                  {"response_format": {"type": "structural_tag", "structures": []}},
                  {"tools": [tool(Trip)], "tool_choice": {"type": "function", "function": {
                      "name": "gone"}}},
                  {"tools": [{"type": "function", "function": {"name": "f", "parameters": bad}}],
                   "tool_choice": "required"},
                  {"tools": [{"type": "web_search"}], "tool_choice": "required"}]
        for body in bodies:
            with self.assertRaises(openai.BadRequestError, msg=body) as caught:
                ask(extra_body=body)
            self.assertTrue(caught.exception.body["message"], body)
        for body in ({"text": {"format": "json"}}, {"text": {"format": {"type": "json_schema"}}},
                     {"text": {"format": {"type": "json_schema", "name": "n", "schema": bad}}}):
            with self.assertRaises(openai.BadRequestError, msg=body):
                openai_client.responses.create(model=MODEL, input="x", extra_body=body)

    def test_a_forced_call_wins_over_a_format(self):
        answer = ask(extra_body={"tools": [tool(Trip)], "tool_choice": "required", "guided_json": {}})
        self.assertEqual(answer.choices[0].message.tool_calls[0].function.name, "Trip")

    def test_a_grammar_ends_an_answer_that_ignores_ends(self):
        for body, length in (({"guided_regex": "[a-z]{3}"}, 3), ({"guided_regex": "a{1,9}"}, 9)):
            choice = ask(extra_body={"ignore_eos": True, **body}).choices[0]
            self.assertEqual(len(choice.message.content), length)
            self.assertEqual(choice.finish_reason, "stop")


class RandomSchemas(unittest.TestCase):
    def test_answers_are_valid_or_the_schema_is_refused(self):
        ended = refused = 0
        for seed in range(400):
            schema = random_schema(random.Random(seed))
            try:
                choice = openai_client.completions.create(
                    model=MODEL, prompt="A", max_tokens=200, temperature=1.5, seed=seed,
                    extra_body={"guided_json": schema}).choices[0]
            except openai.BadRequestError as error:
                self.assertIn("'guided_json': ", error.body["message"], schema)
                refused += 1
                continue
            if choice.finish_reason == "stop":
                ended += 1
                try:
                    check(schema, json.loads(choice.text))
                except (jsonschema.ValidationError, ValueError) as error:
                    self.fail(f"seed {seed}: {choice.text}: {error}")
        self.assertGreater(ended, 150)
        self.assertGreater(refused, 40)


class Anthropic(unittest.TestCase):
    def ask(self, **more):
        more = {"model": MODEL, "messages": fox(), "max_tokens": 600,
                "extra_body": {"temperature": 1.3, **more.pop("body", {})}, **more}
        return anthropic_client.messages.create(**more)

    def test_forced_calls_fit_their_schema(self):
        def named(cls):
            return {"name": cls.__name__, "input_schema": cls.model_json_schema()}
        classes = {cls.__name__: cls for cls in (Trip, Now, Drawing)}
        tools = [named(cls) for cls in classes.values()]
        for seed in SEEDS:
            answer = self.ask(tools=tools, tool_choice={"type": "any"}, body={"seed": seed})
            self.assertEqual(answer.stop_reason, "tool_use")
            check(classes[answer.content[0].name].model_json_schema(), answer.content[0].input)
        for name, cls in classes.items():
            answer = self.ask(tools=tools, tool_choice={"type": "tool", "name": name,
                                                        "disable_parallel_tool_use": True})
            self.assertEqual(answer.content[0].name, name)
            check(cls.model_json_schema(), answer.content[0].input)
        empty = self.ask(tools=[{"name": "now", "input_schema": {"type": "object"}}],
                         tool_choice={"type": "any"})
        self.assertEqual(empty.content[0].input, {})

    def test_formats(self):
        form = {"type": "json_schema", "schema": Trip.model_json_schema()}
        for body in ({"output_config": {"format": form}}, {"output_format": form}):
            answer = self.ask(body=body)
            check(form["schema"], json.loads(answer.content[0].text))
        # The package sends no lengths (it writes them into descriptions) but checks them.
        parsed = anthropic_client.messages.parse(model=MODEL, messages=fox(), max_tokens=600,
                                                 output_format=Sighting)
        self.assertIsInstance(parsed.parsed_output, Sighting)

    def test_what_cannot_be_kept_is_refused(self):
        bad = {"type": "json_schema", "schema": {"type": "object", "$dynamicRef": "#a"}}
        for body in ({"output_config": {"format": bad}}, {"output_config": {"format": "json"}},
                     {"output_config": {"format": {"type": "json_schema"}}}, {"output_format": bad},
                     {"tool_choice": {"type": "tool", "name": "gone"},
                      "tools": [{"name": "f", "input_schema": {}}]},
                     {"tool_choice": {"type": "perhaps"},
                      "tools": [{"name": "f", "input_schema": {}}]}):
            with self.assertRaises(anthropic.BadRequestError, msg=body):
                self.ask(body=body)

    def test_tools_of_the_server_are_left_out(self):
        answer = self.ask(body={"tools": [{"type": "web_search_20250305", "name": "web_search"}]})
        self.assertEqual(answer.type, "message")


class Ollama(unittest.TestCase):
    def test_format_is_a_schema(self):
        for cls in (Trip, Now, Drawing):
            schema = cls.model_json_schema()
            options = {"temperature": 1.3, "num_predict": 600}
            said = ollama_client.chat(MODEL, messages=fox(), format=schema, options=options)
            check(schema, json.loads(said.message.content))
            said = ollama_client.generate(MODEL, "A fox", format=schema, options=options)
            check(schema, json.loads(said.response))

    def test_what_cannot_be_kept_is_refused(self):
        both = {"type": "array", "uniqueItems": True, "contains": {"const": 1}}
        for bad in ({"$dynamicRef": "#a"}, {"type": "object", "properties": {"a": both}}):
            with self.assertRaises(ollama.ResponseError) as caught:
                ollama_client.chat(MODEL, messages=fox(), format=bad)
            self.assertEqual(caught.exception.status_code, 400)
            self.assertIn("'format'", caught.exception.error)


if __name__ == "__main__":
    unittest.main(verbosity=1)
