"""The official `anthropic` package against our server: run by run.py."""
import json
import os
import unittest

import anthropic

client = anthropic.Anthropic(base_url=os.environ["KTX_URL"], api_key="none", max_retries=0)
FOX = [{"role": "user", "content": "Tell me a story about a fox."}]
WEATHER = [{"name": "get_weather", "description": "The weather of a city",
            "input_schema": {"type": "object", "properties": {"city": {"type": "string",
                                                                       "maxLength": 10}},
                             "required": ["city"]}}]


GREEDY = {"temperature": 0}  # newer packages have no argument for it


def ask(messages=FOX, **more):
    more = {"model": "qwen3moe", "extra_body": GREEDY, "max_tokens": 24, **more}
    return client.messages.create(messages=messages, **more)


def stream(**more):
    more = {"model": "qwen3moe", "messages": FOX, "extra_body": GREEDY, "max_tokens": 24, **more}
    return client.messages.stream(**more)


class Messages(unittest.TestCase):
    def test_answer_has_every_field(self):
        answer = ask()
        self.assertEqual((answer.type, answer.role), ("message", "assistant"))
        self.assertTrue(answer.id.startswith("msg_"))
        self.assertEqual(answer.content[0].type, "text")
        self.assertTrue(answer.content[0].text)
        self.assertEqual(answer.stop_reason, "max_tokens")
        self.assertEqual(answer.usage.output_tokens, 24)
        again = ask().usage
        self.assertGreater(again.cache_read_input_tokens, 0)
        self.assertGreater(again.input_tokens, 0)

    def test_stream_equals_whole(self):
        whole = ask().content[0].text
        with stream() as events:
            text = "".join(events.text_stream)
            final = events.get_final_message()
        self.assertEqual(text, whole)
        self.assertEqual(final.content[0].text, whole)
        self.assertEqual(final.stop_reason, "max_tokens")
        self.assertEqual(final.usage.output_tokens, 24)

    def test_stop_sequences(self):
        whole = ask().content[0].text
        stop = whole[20:26]
        answer = ask(stop_sequences=[stop, "never this"])
        self.assertEqual(answer.content[0].text, whole[:whole.find(stop)])
        self.assertEqual((answer.stop_reason, answer.stop_sequence), ("stop_sequence", stop))

    def test_conversations_and_sampling(self):
        answer = ask([{"role": "user", "content": [{"type": "text", "text": "What is "},
                                                   {"type": "text", "text": "12 + 30?"}]},
                      {"role": "assistant", "content": "42"},
                      {"role": "user", "content": "And 1 + 1?"}],
                     system="You are brief.", metadata={"user_id": "somebody"},
                     extra_body={"temperature": 0.7, "top_p": 0.9, "top_k": 20})
        self.assertTrue(answer.content)
        self.assertTrue(ask(system=[{"type": "text", "text": "Be brief."}]).content)

    def test_tools(self):
        for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
            answer = ask(tools=WEATHER, tool_choice=choice, max_tokens=300)
            self.assertEqual(answer.stop_reason, "tool_use")
            call = answer.content[0]
            self.assertEqual((call.type, call.name), ("tool_use", "get_weather"))
            self.assertIn("city", call.input)
            with stream(max_tokens=300, tools=WEATHER, tool_choice=choice) as events:
                said = [e.partial_json for e in events if e.type == "input_json"]
                final = events.get_final_message()
            self.assertEqual(final.content[0].input, call.input)
            self.assertGreater(len(said), 2, "arguments come as they are said")
            self.assertEqual(json.loads("".join(said)), call.input)
        ask(tools=WEATHER, tool_choice={"type": "auto"})
        ask(tools=WEATHER, tool_choice={"type": "none"})
        answer = ask([*FOX, {"role": "assistant", "content": [
                          {"type": "tool_use", "id": "toolu_1", "name": "get_weather",
                           "input": {"city": "Paris"}}]},
                      {"role": "user", "content": [{"type": "tool_result",
                                                    "tool_use_id": "toolu_1",
                                                    "content": "sunny"}]}], tools=WEATHER)
        self.assertTrue(answer.content)

    def test_errors_are_their_classes(self):
        for wrong in ({"extra_body": {"temperature": -1}}, {"max_tokens": -5}, {"messages": []},
                      {"messages": [{"role": "user", "content": "word " * 5000}]},
                      {"tools": [{"name": ""}]}, {"tool_choice": {"type": "any"}}):
            with self.assertRaises(anthropic.BadRequestError, msg=wrong):
                ask(**wrong)

    def test_a_client_that_leaves_disturbs_nobody(self):
        whole = ask().content[0].text
        with stream(max_tokens=2000) as events:
            next(iter(events))
        self.assertEqual(ask().content[0].text, whole)


if __name__ == "__main__":
    unittest.main(verbosity=1)
