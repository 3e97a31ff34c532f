// /rerank and its other names, over a decoder that scores texts (Qwen3-Reranker's form) and over a
// model that does not; and embeddings of an encoder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/input/gguf_writer.h"
#include "tests/support/http_client.h"
#include "tests/support/test_models.h"
#include "tools/dev/synth/synth_model.h"

namespace ktx::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTemplate =
    "<|im_start|>system\nJudge.<|im_end|>\n<|im_start|>user\n<Query>: {query}\n"
    "<Document>: {document}<|im_end|>\n<|im_start|>assistant\n";

void compile_reranker(const TempDir& dir, bool with_template) {
  const std::string folder = source_dir() + "/tests/models/synthetic/qwen3_reranker";
  const auto config = input::HfConfig::parse(read_file(folder + "/config.json"), "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  auto writer = synth::synthesise(*config, {.types = "f32", .strong = true});
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  if (with_template) writer->add_string("tokenizer.chat_template.rerank", kTemplate);
  ASSERT_TRUE(writer->write(dir.path("m.gguf")));
  const Finished run =
      run_program({ktx_compile(), "-q", dir.path("m.gguf"), "-o", dir.path("m.ktxplan")});
  ASSERT_EQ(run.status, 0) << run.err;
}

class Rerank : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    compile_reranker(*dir_, true);
    server_ = new ServerProcess(
        {dir_->path("m.ktxplan"), "--max-batch", "2", "--precision", "exact", "--ctx", "256"});
  }
  static void TearDownTestSuite() {
    delete server_;
    delete dir_;
  }
  static json ask(const std::string& path, const json& body, int status = 200) {
    const HttpAnswer answer = server_->post(path, body.dump());
    EXPECT_EQ(answer.status, status) << answer.body;
    return answer.json();
  }
  static std::string refused(const json& body, int status = 400) {
    return ask("/rerank", body, status)["error"]["message"];
  }

  static TempDir* dir_;
  static ServerProcess* server_;
};
TempDir* Rerank::dir_ = nullptr;
ServerProcess* Rerank::server_ = nullptr;

const json kDocuments = {"the cat", "a dog in the house", "he said", ""};

TEST_F(Rerank, EveryNameOrdersAllDocumentsByTheirScores) {
  const json body = {
      {"model", "any"}, {"query", "what is in the house"}, {"documents", kDocuments}};
  const json first = ask("/rerank", body);
  EXPECT_EQ(first["object"], "list");
  EXPECT_EQ(first["usage"]["prompt_tokens"], first["usage"]["total_tokens"]);
  const json& results = first["results"];
  ASSERT_EQ(results.size(), 4U);
  std::set<int> seen;
  for (size_t i = 0; i < results.size(); ++i) {
    const double score = results[i]["relevance_score"];
    EXPECT_GE(score, 0);
    EXPECT_LE(score, 1);
    if (i > 0) {
      EXPECT_LE(score, results[i - 1]["relevance_score"].get<double>());
    }
    seen.insert(results[i]["index"].get<int>());
    EXPECT_FALSE(results[i].contains("document"));
  }
  EXPECT_EQ(seen, (std::set<int>{0, 1, 2, 3}));
  for (const char* path : {"/reranking", "/v1/rerank", "/v1/reranking"}) {
    EXPECT_EQ(ask(path, body)["results"], results) << path;
  }
}

TEST_F(Rerank, ADocumentsScoreDoesNotDependOnTheOthers) {
  const auto score = [](const json& documents, int index) {
    const json answer = ask("/rerank", {{"query", "a house"}, {"documents", documents}});
    for (const json& item : answer["results"]) {
      if (item["index"] == index) return item["relevance_score"].get<double>();
    }
    ADD_FAILURE();
    return 0.0;
  };
  EXPECT_EQ(score(kDocuments, 1), score(json::array({kDocuments[1]}), 0));
}

TEST_F(Rerank, GivesTheBestWithTheirTextsWhereThatIsAsked) {
  json body = {{"query", "q"}, {"documents", kDocuments}, {"top_n", 2}, {"return_documents", true}};
  const json results = ask("/v1/rerank", body)["results"];
  ASSERT_EQ(results.size(), 2U);
  for (const json& item : results) {
    EXPECT_EQ(item["document"]["text"], kDocuments[item["index"].get<size_t>()]);
  }
  body["top_n"] = 99;
  EXPECT_EQ(ask("/v1/rerank", body)["results"].size(), 4U);
  body["documents"] = {{{"text", "the cat"}}, "he said"};  // as Cohere's clients send them
  EXPECT_EQ(ask("/v1/rerank", body)["results"].size(), 2U);
}

TEST_F(Rerank, TextEmbeddingsInferencesFormIsABareList) {
  const json body = {{"query", "q"}, {"texts", kDocuments}, {"top_n", 3}, {"return_text", true}};
  const json results = ask("/rerank", body);
  ASSERT_TRUE(results.is_array());
  ASSERT_EQ(results.size(), 3U);
  EXPECT_TRUE(results[0].contains("score"));
  EXPECT_EQ(results[0]["text"], kDocuments[results[0]["index"].get<size_t>()]);
}

// A document that closes the user's turn would else write its own judgement.
TEST_F(Rerank, DocumentsCannotWriteControlTokens) {
  const json with = ask("/rerank", {{"query", "q"}, {"documents", {"<|im_end|>"}}});
  const json without = ask("/rerank", {{"query", "q"}, {"documents", {""}}});
  EXPECT_GT(with["usage"]["prompt_tokens"].get<int>(),
            without["usage"]["prompt_tokens"].get<int>() + 1);
}

TEST_F(Rerank, WrongRequestsAreRefusedByField) {
  EXPECT_THAT(refused({{"documents", kDocuments}}), HasSubstr("'query' is missing"));
  EXPECT_THAT(refused({{"query", 3}, {"documents", kDocuments}}), HasSubstr("query"));
  EXPECT_THAT(refused({{"query", "q"}}), HasSubstr("'documents' must be a list of at least one"));
  EXPECT_THAT(refused({{"query", "q"}, {"documents", json::array()}}), HasSubstr("'documents'"));
  EXPECT_THAT(refused({{"query", "q"}, {"documents", 123}}), HasSubstr("documents"));
  EXPECT_THAT(refused({{"query", "q"}, {"documents", {1, 2}}}),
              HasSubstr("'documents[0]' is 1, expected a text"));
  EXPECT_THAT(refused({{"query", "q"}, {"documents", kDocuments}, {"top_n", 0}}),
              HasSubstr("top_n"));
  EXPECT_THAT(refused({{"query", "q"}, {"documents", {std::string(2000, 'x')}}}),
              HasSubstr("'documents[0]' is too large"));
}

TEST_F(Rerank, OtherEndpointsSayWhatTheModelIsFor) {
  EXPECT_THAT(std::string(ask("/v1/completions", {{"prompt", "a"}}, 400)["error"]["message"]),
              HasSubstr("POST to /rerank"));
  EXPECT_THAT(std::string(ask("/v1/embeddings", {{"input", "a"}}, 400)["error"]["message"]),
              HasSubstr("POST to /rerank"));
}

TEST(RerankWithout, ATemplateOrAHeadSaysWhatIsMissing) {
  const TempDir dir;
  compile_reranker(dir, false);
  const json body = {{"query", "q"}, {"documents", {"d"}}};
  const ServerProcess plain({dir.path("m.ktxplan"), "--ctx", "128"});
  const HttpAnswer no_template = plain.post("/rerank", body.dump());
  EXPECT_EQ(no_template.status, 501);
  EXPECT_THAT(no_template.body, HasSubstr("tokenizer.chat_template.rerank"));

  ASSERT_EQ(
      run_program({ktx_compile(), "-q", model_gguf("llama"), "-o", dir.path("l.ktxplan")}).status,
      0);
  const ServerProcess llama({dir.path("l.ktxplan"), "--ctx", "128"});
  const HttpAnswer no_head = llama.post("/rerank", body.dump());
  EXPECT_EQ(no_head.status, 501);
  EXPECT_THAT(no_head.body, HasSubstr("no head that scores texts"));
}

// An encoder of random weights, with the words of `vocabulary` or else of bytes.
void compile_encoder(const TempDir& dir, const input::GgufFile* vocabulary) {
  const std::string folder = source_dir() + "/tests/models/synthetic/bert";
  const auto config = input::HfConfig::parse(read_file(folder + "/config.json"), "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto writer =
      synth::synthesise(*config, {.types = "f32", .strong = true, .vocabulary = vocabulary});
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  ASSERT_TRUE(writer->write(dir.path("m.gguf")));
  const Finished run =
      run_program({ktx_compile(), "-q", dir.path("m.gguf"), "-o", dir.path("m.ktxplan")});
  ASSERT_EQ(run.status, 0) << run.err;
}

// An encoder behind the same server: embeddings of whole texts, within its context.
TEST(EncoderServer, EmbedsTextsAsAWholeAndSaysHowLongTheyMayBe) {
  const TempDir dir;
  compile_encoder(dir, nullptr);
  const ServerProcess server({dir.path("m.ktxplan"), "--max-batch", "2", "--ctx", "32"});
  const auto embed = [&](const json& input) {
    const HttpAnswer answer = server.post("/v1/embeddings", json{{"input", input}}.dump());
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json()["data"];
  };
  const json one = embed("a house")[0]["embedding"];
  ASSERT_EQ(one.size(), 96U);
  double length = 0;
  for (const double x : one) length += x * x;
  EXPECT_NEAR(length, 1, 1e-3);
  const json both = embed({"a house", "the cat"});
  EXPECT_EQ(both[0]["embedding"], one) << "beside another text";
  EXPECT_NE(both[1]["embedding"], one);
  EXPECT_EQ(embed("a house")[0]["embedding"], one) << "again";

  const HttpAnswer long_text =
      server.post("/v1/embeddings", json{{"input", std::string(200, 'x')}}.dump());
  EXPECT_EQ(long_text.status, 400);
  EXPECT_THAT(long_text.body, HasSubstr("at most 32 are possible"));
  const HttpAnswer chat = server.post("/v1/completions", json{{"prompt", "a"}}.dump());
  EXPECT_EQ(chat.status, 400);
  EXPECT_THAT(chat.body, HasSubstr("POST to /v1/embeddings"));
}

// What the model was trained on: [CLS] text [SEP], though no text has them.
TEST(EncoderServer, TextsGetTheSeparatorsOfTheVocabulary) {
  const TempDir dir;
  input::GgufWriter words;
  words.add_string("general.architecture", "bert");
  words.add_string("tokenizer.ggml.model", "bert");
  words.add_strings("tokenizer.ggml.tokens",
                    std::vector<std::string>{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
                                             "\u2581the", "\u2581cat", "s"});
  words.add_i32s("tokenizer.ggml.token_type", std::vector<int32_t>{3, 3, 3, 3, 3, 1, 1, 1});
  words.add_u32("tokenizer.ggml.padding_token_id", 0);
  words.add_u32("tokenizer.ggml.unknown_token_id", 1);
  words.add_u32("tokenizer.ggml.cls_token_id", 2);
  words.add_u32("tokenizer.ggml.seperator_token_id", 3);
  words.add_u32("tokenizer.ggml.mask_token_id", 4);
  ASSERT_TRUE(words.write(dir.path("words.gguf")));
  const auto vocabulary = input::GgufFile::open(dir.path("words.gguf"), {});
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
  compile_encoder(dir, &*vocabulary);

  const ServerProcess server({dir.path("m.ktxplan"), "--ctx", "32"});
  const auto embed = [&](const json& input) {
    const HttpAnswer answer = server.post("/v1/embeddings", json{{"input", input}}.dump());
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  };
  const json text = embed("The cats");
  EXPECT_EQ(text["usage"]["prompt_tokens"], 5);
  const auto embedding = [&](const json& answer) { return answer["data"][0]["embedding"]; };
  EXPECT_EQ(embedding(text), embedding(embed({{2, 5, 6, 7, 3}})));
  EXPECT_NE(embedding(text), embedding(embed({{5, 6, 7}}))) << "ids are taken as they are";
  EXPECT_NE(embedding(text), embedding(embed("[CLS] the cats [SEP]"))) << "a text writes no token";
  const json ask = {{"content", "The cats"}, {"add_special", true}};
  EXPECT_EQ(server.post("/tokenize", ask.dump()).json()["tokens"], json({2, 5, 6, 7, 3}));
  // Nothing is said of chat, which it is not for.
  const Finished check = run_program({ktx_compile(), "--check", dir.path("m.gguf")});
  EXPECT_THAT(check.err, Not(HasSubstr("chat"))) << check.err;
}

}  // namespace
}  // namespace ktx::testing
