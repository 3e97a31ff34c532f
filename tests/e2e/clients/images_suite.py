"""Images by the official packages `openai`, `anthropic` and `ollama`: run by run.py."""
import base64
import os
import struct
import unittest
import urllib.request
import zlib

import anthropic
import ollama
import openai

URL = os.environ["KTX_URL"]
QUESTION = "Tell me a story about a fox."


def png(shade):
    """8 by 8 pixels."""
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))
    rows = b"".join(b"\0" + b"".join(bytes((shade, 8 * x, 8 * y)) for x in range(8))
                    for y in range(8))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def encoded(shade):
    return base64.b64encode(png(shade)).decode()


def metric(name):
    text = urllib.request.urlopen(URL + "/metrics").read().decode()
    return next(float(line.split()[1]) for line in text.splitlines()
                if line.startswith(f"ktx_{name} ") or line.startswith(name + " "))


class Images(unittest.TestCase):
    def openai_says(self, *shades):
        client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
        parts = [{"type": "image_url",
                  "image_url": {"url": "data:image/png;base64," + encoded(shade)}}
                 for shade in shades]
        return client.chat.completions.create(
            model="gemma3", temperature=0, max_tokens=12,
            messages=[{"role": "user", "content": [*parts, {"type": "text", "text": QUESTION}]}])

    def test_all_see_the_same(self):
        chat = self.openai_says(10)
        said = chat.choices[0].message.content
        client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
        response = client.responses.create(
            model="gemma3", temperature=0, max_output_tokens=12,
            input=[{"role": "user",
                    "content": [{"type": "input_image",
                                 "image_url": "data:image/png;base64," + encoded(10),
                                 "detail": "auto"},
                                {"type": "input_text", "text": QUESTION}]}])
        self.assertEqual(response.output_text, said)
        self.assertEqual(response.usage.input_tokens, chat.usage.prompt_tokens)
        client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
        messages = [{"role": "user",
                     "content": [{"type": "image",
                                  "source": {"type": "base64", "media_type": "image/png",
                                             "data": encoded(10)}},
                                 {"type": "text", "text": QUESTION}]}]
        answer = client.messages.create(model="gemma3", max_tokens=12, messages=messages,
                                        extra_body={"temperature": 0})
        self.assertEqual(answer.content[0].text, said)
        counted = client.messages.count_tokens(model="gemma3", messages=messages)
        self.assertEqual(counted.input_tokens, chat.usage.prompt_tokens)
        client = ollama.Client(host=URL)
        told = client.chat(model="gemma3", options={"temperature": 0, "num_predict": 12},
                           messages=[{"role": "user", "content": QUESTION, "images": [png(10)]}])
        self.assertEqual(told.message.content, said)
        written = client.generate(model="gemma3", prompt=QUESTION, images=[png(10)],
                                  options={"temperature": 0, "num_predict": 12})
        self.assertEqual(written.response, said)
        self.assertIn("vision", client.show("gemma3").capabilities)

    # An agent that has read a file by a tool: its next request has the picture in the result.
    def test_results_of_tools_are_seen(self):
        def anthropic_counts(content):
            client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
            messages = [
                {"role": "user", "content": "Look at fox.png."},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "Read",
                                                   "input": {"file_path": "fox.png"}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1",
                                              "content": content}]}]
            answer = client.messages.create(model="gemma3", max_tokens=12, messages=messages,
                                            extra_body={"temperature": 0})
            self.assertTrue(answer.content[0].text)
            usage = answer.usage
            return usage.input_tokens + (usage.cache_read_input_tokens or 0)

        picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                               "data": encoded(30)}}
        read = {"type": "text", "text": "Read."}
        before = metric("images_total")
        without = anthropic_counts([read])
        self.assertGreater(anthropic_counts([read, picture]), without + 8)
        self.assertEqual(metric("images_total"), before + 1)

        def openai_counts(output):
            client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
            response = client.responses.create(
                model="gemma3", temperature=0, max_output_tokens=12,
                input=[{"role": "user", "content": "Look at fox.png."},
                       {"type": "function_call", "call_id": "c1", "name": "view_image",
                        "arguments": '{"path": "fox.png"}'},
                       {"type": "function_call_output", "call_id": "c1", "output": output}])
            self.assertTrue(response.output_text)
            return response.usage.input_tokens

        text = {"type": "input_text", "text": "Read."}
        picture = {"type": "input_image", "image_url": "data:image/png;base64," + encoded(30),
                   "detail": "auto"}
        self.assertGreater(openai_counts([text, picture]), openai_counts([text]) + 8)
        self.assertEqual(metric("images_total"), before + 2)

    def test_each_image_counts_and_is_computed_once(self):
        one, two = self.openai_says(20), self.openai_says(20, 21)
        self.assertGreater(two.usage.prompt_tokens, one.usage.prompt_tokens + 8)
        before = metric("images_computed_total")
        self.openai_says(21, 20, 21)
        self.assertEqual(metric("images_computed_total"), before)
        self.openai_says(22)
        self.assertEqual(metric("images_computed_total"), before + 1)

    def test_errors_are_their_classes(self):
        client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
        for url in ("https://example.com/a.png", "data:image/png;base64,AAAA", "data:x"):
            with self.assertRaises(openai.BadRequestError):
                client.chat.completions.create(
                    model="gemma3",
                    messages=[{"role": "user", "content": [
                        {"type": "image_url", "image_url": {"url": url}}]}])
        client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
        with self.assertRaises(anthropic.BadRequestError):
            client.messages.create(
                model="gemma3", max_tokens=4,
                messages=[{"role": "user", "content": [
                    {"type": "image", "source": {"type": "url",
                                                 "url": "https://example.com/a.png"}}]}])
        with self.assertRaises(ollama.ResponseError):
            ollama.Client(host=URL).chat(model="gemma3", messages=[
                {"role": "user", "content": "?", "images": [b"no image"]}])


if __name__ == "__main__":
    unittest.main(verbosity=1)
