// Perplexity, scores and comparisons: the figures of llama.cpp, and of the server's own `echo`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lib/support/hash.h"
#include "tests/support/http_client.h"
#include "tests/support/run_program.h"
#include "tests/support/test_models.h"

namespace ktx::testing {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

std::string quality_file(const std::string& name) {
  return source_dir() + "/tests/quality/" + name;
}

const Json& references() {
  static const Json all = Json::parse(read_file(quality_file("references.json")));
  return all;
}

class Quality : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { dir_ = new TempDir; }
  static void TearDownTestSuite() { delete dir_; }

  // Compiled once.
  static std::string plan_of(const std::string& gguf, std::vector<std::string> options = {}) {
    std::string name = "m" + std::to_string(plans_.size()) + ".ktxplan";
    const auto [at, added] = plans_.emplace(gguf + Json(options).dump(), dir_->path(name));
    if (!added) return at->second;
    std::vector<std::string> command = {ktx_compile(), "-q", gguf, "-o", at->second};
    command.insert(command.end(), options.begin(), options.end());
    const Finished compiled = run_program(command);
    EXPECT_EQ(compiled.status, 0) << compiled.err;
    return at->second;
  }
  static std::string plan(const std::string& model) { return plan_of(model_gguf(model)); }

  static Finished run(std::vector<std::string> args, const std::string& input = "") {
    args.insert(args.begin(), ktx_run());
    return run_program(args, input);
  }
  static Json json_of(std::vector<std::string> args) {
    args.emplace_back("--json");
    const Finished finished = run(std::move(args));
    EXPECT_EQ(finished.status, 0) << finished.err;
    return Json::parse(finished.out, nullptr, false);
  }
  // One JSON object a line.
  static std::vector<Json> scores(const std::string& plan, const std::string& lines,
                                  std::vector<std::string> options = {}) {
    options.insert(options.begin(), {"score", plan, "-f", "-", "--precision", "exact"});
    const Finished finished = run(options, lines);
    EXPECT_EQ(finished.status, 0) << finished.err;
    std::vector<Json> found;
    std::istringstream out(finished.out);
    for (std::string line; std::getline(out, line);) found.push_back(Json::parse(line));
    return found;
  }

  static TempDir* dir_;
  static std::map<std::string, std::string> plans_;
};
TempDir* Quality::dir_ = nullptr;
std::map<std::string, std::string> Quality::plans_;

std::string hash_of(const std::string& path) {
  const std::string bytes = read_file(path);
  return to_hex(hash_bytes(std::as_bytes(std::span(bytes))));
}

// llama.cpp's own figures for the same GGUF (tests/quality/README.md). In exact precision only the
// order of sums differs from its run with weights and cache in F32.
void expect_llama_cpps(const std::string& gguf, const std::string& plan, const Json& reference) {
  ASSERT_EQ(hash_of(gguf), reference["xxh3_128"]);
  const auto measured = [&](const char* precision) {
    const Finished run = run_program(
        {ktx_run(), "perplexity", plan, "-f", quality_file(reference["text"]), "--ctx",
         std::to_string(reference["context"].get<int>()), "--precision", precision, "--json"});
    EXPECT_EQ(run.status, 0) << run.err;
    return Json::parse(run.out, nullptr, false);
  };
  const Json exact = measured("exact");
  EXPECT_EQ(exact["contexts"], reference["contexts"]);
  const double f32 = reference["f32"], int8 = reference["int8"];
  EXPECT_NEAR(exact["perplexity"]["value"].get<double>() / f32, 1, 0.0005);
  EXPECT_NEAR(exact["perplexity"]["error"].get<double>() / reference["f32_error"].get<double>(), 1,
              0.0005);
  // Rounding moves both from the exact figure, each in its own way.
  const double fast = measured("fast")["perplexity"]["value"];
  EXPECT_NEAR(fast / f32, 1, 0.004 + std::abs(int8 / f32 - 1));
}

TEST_F(Quality, PerplexityIsLlamaCpps) {
  for (const Json& reference : references()["perplexity"]) {
    const auto model = reference["model"].get<std::string>();
    SCOPED_TRACE(model);
    expect_llama_cpps(model_gguf(model), plan(model), reference);
  }
}

TEST_F(Quality, PerplexityOfARealModelIsLlamaCpps) {
  const char* const gguf = std::getenv("KTX_GEMMA3_270M");
  if (gguf == nullptr) GTEST_SKIP() << "KTX_GEMMA3_270M names no GGUF of Gemma 3 270M";
  expect_llama_cpps(gguf, plan_of(gguf), references()["gemma3_270m"]);
}

// A file of log-probabilities that llama.cpp wrote, and the statistics that it printed for another
// model beside it.
TEST_F(Quality, ReadsBasesOfLlamaCpp) {
  const Json& reference = references()["kl_divergence"];
  const Json found = json_of({"perplexity", plan(reference["model"]), "--base",
                              quality_file(reference["base"]), "--precision", "exact"});
  EXPECT_EQ(found["contexts"], reference["contexts"]);
  const auto expect = [&](const Json& value, const char* name, double rounding) {
    EXPECT_NEAR(value.get<double>(), reference[name].get<double>(), rounding) << name;
  };
  expect(found["perplexity"]["value"], "perplexity", 2e-4);
  expect(found["log_ratio"]["value"], "log_ratio", 2e-5);
  expect(found["kl_divergence"]["value"], "kl_divergence", 2e-5);
  expect(found["kl_divergence"]["error"], "kl_divergence_error", 2e-5);
  expect(found["same_top"]["value"], "same_top", 1e-6);
  expect(found["rms_delta_p"]["value"], "rms_delta_p", 1e-5);
}

TEST_F(Quality, AModelIsNoDistanceFromItself) {
  const std::string text = quality_file("talk.txt"), base = dir_->path("own.logits");
  const Json measured = json_of({"perplexity", plan("llama"), "-f", text, "--ctx", "64",
                                 "--contexts", "9", "--save-logits", base});
  EXPECT_EQ(measured["contexts"], 9);
  EXPECT_EQ(measured["scored_tokens"], 9 * 31);
  const Json again = json_of({"perplexity", plan("llama"), "--base", base});
  EXPECT_EQ(again["perplexity"], measured["perplexity"]);
  EXPECT_NEAR(again["kl_divergence"]["value"].get<double>(), 0, 2e-5);
  EXPECT_EQ(again["same_top"]["value"], 1.0);
  const Json pair = json_of({"compare", plan("llama"), plan("llama"), "-f", text, "--ctx", "64",
                             "--contexts", "9", "--layers"});
  EXPECT_EQ(pair["perplexity"], measured["perplexity"]);
  EXPECT_NEAR(pair["kl_divergence"]["value"].get<double>(), 0, 1e-6);
  EXPECT_EQ(pair["layers"]["part_at"], nullptr);
  EXPECT_EQ(pair["layers"]["differences"].size(), 4u);  // the embedding and three layers
}

// Neither chunks nor threads nor the rows of a pass change a bit.
TEST_F(Quality, PerplexityDependsOnNoPartition) {
  const auto measured = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"perplexity", plan("qwen3moe"), "-f", quality_file("talk.txt"),
                                     "--ctx", "100", "--contexts", "3"});
    return json_of(options)["perplexity"];
  };
  const Json expected = measured({});
  EXPECT_EQ(measured({"-t", "1"}), expected);
  EXPECT_EQ(measured({"--chunk", "7"}), expected);
  EXPECT_EQ(measured({"--isa", "avx2"}), expected);
}

TEST_F(Quality, ComparisonsAgreeWithFilesOfLogprobs) {
  const std::string text = quality_file("talk.txt"), base = dir_->path("exact.logits");
  const std::string model = plan("qwen3moe");
  json_of({"perplexity", model, "-f", text, "--ctx", "128", "--precision", "exact", "--save-logits",
           base});
  const Json by_file = json_of({"perplexity", model, "--base", base});
  const Json side_by_side = json_of({"compare", model, model, "-f", text, "--ctx", "128",
                                     "--base-precision", "exact", "--layers"});
  for (const char* figure : {"kl_divergence", "same_top", "rms_delta_p"}) {
    EXPECT_NEAR(by_file[figure]["value"].get<double>(), side_by_side[figure]["value"].get<double>(),
                1e-4)
        << figure;
  }
  EXPECT_GT(side_by_side["kl_divergence"]["value"].get<double>(), 1e-4);  // int8 activations
  const Json& layers = side_by_side["layers"]["differences"];
  ASSERT_EQ(layers.size(), 4u);
  EXPECT_EQ(layers[0]["relative_difference"], 0.0);
  for (size_t i = 1; i < layers.size(); ++i) {
    EXPECT_GT(layers[i]["relative_difference"].get<double>(), 1e-3);
    EXPECT_LT(layers[i]["relative_difference"].get<double>(), 0.1);
  }
}

// Where a rule rounds one layer's weights, that layer is named.
TEST_F(Quality, ComparisonsNameTheLayerThatWasChanged) {
  const std::string rules =
      dir_->write("round.yaml",
                  "- match: {name: \"^model\\\\.layers\\\\.1\\\\.mlp\\\\.\"}\n"
                  "  replace: {layout: int4_g128, lossy: allow}\n");
  const std::string rounded = plan_of(model_gguf("llama"), {rules});
  const Json found =
      json_of({"compare", plan("llama"), rounded, "-f", quality_file("talk.txt"), "--ctx", "128",
               "--contexts", "4", "--precision", "exact", "--layers"});
  EXPECT_EQ(found["layers"]["part_at"], 1);
  EXPECT_EQ(found["layers"]["differences"][1]["relative_difference"], 0.0);  // layer 0
  EXPECT_GT(found["kl_divergence"]["value"].get<double>(), 1e-3);
}

TEST_F(Quality, ScoresAreTheServersEcho) {
  const std::string text = "Once upon a time, there was a fox named Leo. 2 + 2 = 4.";
  ServerProcess server({plan("llama"), "--precision", "exact"});
  const HttpAnswer answer = server.post(
      "/v1/completions",
      Json{{"prompt", text}, {"echo", true}, {"max_tokens", 0}, {"logprobs", 1}}.dump());
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json echo = Json::parse(answer.body)["choices"][0]["logprobs"]["token_logprobs"];
  const std::vector<Json> found = scores(plan("llama"), Json{{"text", text}}.dump());
  ASSERT_EQ(found.size(), 1u);
  const Json& logprobs = found[0]["logprobs"];
  ASSERT_EQ(logprobs.size() + 1, echo.size());  // BOS is not the text's
  for (size_t i = 0; i < logprobs.size(); ++i) {
    EXPECT_NEAR(logprobs[i].get<double>(), echo[i + 1].get<double>(), 1e-6) << i;
  }
}

TEST_F(Quality, ScoresComeInOrderWithTheirLinesFields) {
  std::string lines;
  for (int i = 0; i < 12; ++i) {
    lines +=
        Json{{"id", i}, {"prompt", "Count from 5 to"}, {"text", std::string(i + 1, '9')}}.dump() +
        (i == 5 ? "\n\n" : "\n");
  }
  const std::vector<Json> one = scores(plan("qwen3moe"), lines, {"--max-batch", "1"});
  EXPECT_EQ(scores(plan("qwen3moe"), lines), one);  // eight side by side; bit for bit
  EXPECT_EQ(scores(plan("qwen3moe"), lines, {"--max-batch", "3", "--chunk", "16"}), one);
  ASSERT_EQ(one.size(), 12u);
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(one[i]["id"], i);
    EXPECT_FALSE(one[i].contains("prompt"));
    double sum = 0;
    for (const Json& logprob : one[i]["logprobs"]) sum += logprob.get<double>();
    EXPECT_NEAR(one[i]["logprob"].get<double>(), sum, 1e-9);
    EXPECT_EQ(one[i]["tokens"].get<size_t>(), one[i]["ids"].size());
  }
}

// What stands before a text is computed without logits; its own figures are the same.
TEST_F(Quality, ScoresOfATextAreThoseOfTheWhole) {
  std::vector<int> all(700);
  for (size_t i = 0; i < all.size(); ++i) all[i] = 300 + static_cast<int>(i * i % 997);
  const Json whole = scores(plan("qwen3moe"), Json{{"ids", all}}.dump())[0];
  for (const int64_t before : {1, 63, 64, 65, 512, 699}) {
    const std::vector<int> prompt(all.begin(), all.begin() + before);
    const std::vector<int> text(all.begin() + before, all.end());
    const std::vector<Json> found =
        scores(plan("qwen3moe"), Json{{"prompt_ids", prompt}, {"ids", text}}.dump() +
                                     Json{{"ids", {300, 301}}}.dump().insert(0, "\n"));
    ASSERT_EQ(found[0]["logprobs"].size(), text.size());
    for (size_t i = 0; i < text.size(); ++i) {
      EXPECT_EQ(found[0]["logprobs"][i], whole["logprobs"][i + prompt.size()]) << before;
    }
  }
}

// A text after its prompt has the log-probabilities that generate gives its answer.
TEST_F(Quality, ScoresOfAnAnswerAreThoseOfItsGeneration) {
  const Finished generated =
      run({"generate", plan("llama"), "--prompt-ids", "1,300,400,500", "--temp", "0", "-n", "12",
           "--json", "--logprobs", "1", "--precision", "exact"});
  ASSERT_EQ(generated.status, 0) << generated.err;
  const Json answer = Json::parse(generated.out);
  const std::vector<Json> found = scores(
      plan("llama"), Json{{"prompt_ids", {1, 300, 400, 500}}, {"ids", answer["ids"]}}.dump());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]["greedy"], true);
  ASSERT_EQ(found[0]["logprobs"].size(), answer["steps"].size());
  for (size_t i = 0; i < answer["steps"].size(); ++i) {
    EXPECT_NEAR(found[0]["logprobs"][i].get<double>(), answer["steps"][i]["logprob"].get<double>(),
                1e-6);
  }
  const std::vector<Json> alone = scores(plan("llama"), R"({"ids": [300, 400]})");
  EXPECT_EQ(alone[0]["logprobs"][0], nullptr);  // nothing stands before it
  EXPECT_EQ(alone[0]["tokens"], 1);
}

TEST_F(Quality, MistakesAreNamedWithTheirLine) {
  const Finished lines = run({"score", plan("llama"), "-f", "-"},
                             "{\"text\": \"a\"}\n[1]\n{\"prompt\": \"x\"}\n{\"text\": 5}\n"
                             "{\"text\": \"a\", \"ids\": [1]}\n{\"ids\": [-1]}\n"
                             "{\"ids\": [1], \"prompt\": \"x\"}\n{\"text\": \"\\ud800\"}\n");
  EXPECT_EQ(lines.status, 1);
  EXPECT_EQ(lines.out, "");
  for (const char* expected :
       {"standard input:2: is no JSON object", "standard input:3: needs one of 'text' and 'ids'",
        "standard input:4: 'text' is number, expected a text", "standard input:5: needs one of",
        "standard input:6: 'ids' is not a list of token ids",
        "standard input:7: has 'prompt' beside 'ids'", "standard input:8: is no JSON object"}) {
    EXPECT_THAT(lines.err, HasSubstr(expected));
  }
  const auto error = [&](const std::string& line) {
    const Finished finished = run({"score", plan("llama"), "-f", "-", "--ctx", "64"}, line);
    EXPECT_EQ(finished.status, 1);
    return finished.err;
  };
  EXPECT_THAT(error(R"({"ids": [5, 2048]})"), HasSubstr("token 2048 is not in the vocabulary"));
  EXPECT_THAT(error(R"({"text": ""})"), HasSubstr("the text has no tokens"));
  EXPECT_THAT(error("\n\n"), HasSubstr("has no lines"));
  const std::string longer =
      error(Json{{"ids", std::vector<int>(65, 7)}}.dump() + "\n{\"text\": \"\"}\n");
  EXPECT_THAT(longer, HasSubstr("input:1: the text has 65 tokens, the context 64; a larger one: "));
  EXPECT_THAT(longer, HasSubstr("standard input:2: the text has no tokens"));
}

TEST_F(Quality, WhatCannotBeMeasuredIsRefused) {
  const std::string text = dir_->write("short.txt", "Only a few words.");
  const Finished little = run({"perplexity", plan("llama"), "-f", text});
  EXPECT_EQ(little.status, 1);
  EXPECT_THAT(little.err, HasSubstr("fewer than a context of 512; take a longer one, or --ctx"));
  const Finished both = run({"perplexity", plan("llama"), "-f", text, "--base", "x"});
  EXPECT_EQ(both.status, 2);
  EXPECT_THAT(both.err, HasSubstr("--base has the text: leave -f out"));
  const Finished wrong = run({"perplexity", plan("llama"), "--base", text});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.err, HasSubstr("not a file of log-probabilities"));
  const Finished one = run({"compare", plan("llama"), "-f", text});
  EXPECT_EQ(one.status, 2);
  EXPECT_THAT(one.err, HasSubstr("compare takes two plans, not 1"));
  const Finished other = run({"compare", plan("llama"), plan("mixtral"), "-f",
                              quality_file("talk.txt"), "--ctx", "64", "--contexts", "1"});
  EXPECT_EQ(other.status, 0) << other.err;  // the same vocabulary, another tokenizer
}

}  // namespace
}  // namespace ktx::testing
