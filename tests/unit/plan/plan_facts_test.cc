#include "lib/plan/plan_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ktx::plan {
namespace {

using ::testing::HasSubstr;

TEST(PlanFacts, JsonGivesBackEveryField) {
  PlanFacts facts;
  facts.architecture = "qwen3moe";
  facts.family = "Qwen3MoeForCausalLM";
  facts.name = "a \"name\" with 你好";
  facts.vocab_size = 151936, facts.hidden_size = 2048, facts.layers = 48;
  facts.context_length = 40960, facts.parameters = 30532122624, facts.logits_value = 17;
  facts.bos_id = -1, facts.eos_id = 151645, facts.lossy = true;
  facts.default_ctx = 8192, facts.max_batch = 4, facts.kv_budget_bytes = 1 << 30;
  facts.chunk_tokens = 1024;
  facts.kv_type = "Q8_0", facts.precision = "exact";
  facts.pooling = "rank", facts.scores = 2, facts.encoder = true;
  const auto back = facts_from_json(to_json(facts));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, facts);
}

PlanFacts facts_of_a_tower() {
  PlanFacts facts;
  facts.encoder = true, facts.hidden_size = 40;
  facts.vocab_size = facts.layers = 1, facts.context_length = 36;
  facts.image.size = 36, facts.image.patch = 6, facts.image.pool = 2, facts.image.width = 256;
  facts.image.resize = "bilinear", facts.image.mark = "<image>";
  facts.image.mean = {0.5f, 0.25f, 0}, facts.image.deviation = {1, 0.5f, 0.25f};
  return facts;
}

TEST(PlanFacts, OfAnImageComeBack) {
  PlanFacts facts = facts_of_a_tower();
  facts.image.before = "\n<image>", facts.image.behind = "</image>";
  EXPECT_TRUE(facts.is_tower());
  EXPECT_EQ(facts.output_width(), 256);
  EXPECT_EQ(facts.image.patches(), 36);
  EXPECT_EQ(facts.image.tokens(), 9);
  EXPECT_EQ(facts.image.patch_floats(), 108);
  EXPECT_THAT(no_text_reason(facts), HasSubstr("--mmproj"));
  EXPECT_EQ(*facts_from_json(to_json(facts)), facts);
  facts.image.keeps_shape = facts.image.causal = true, facts.image.line_end = "<line>";
  facts.image.resize = "bicubic", facts.image.size = 37;
  EXPECT_EQ(facts.image.patches(), 64);  // sides of 37 pixels are four squares of 12
  EXPECT_EQ(facts.image.tokens(), 16);
  EXPECT_EQ(*facts_from_json(to_json(facts)), facts);
  facts.image.least_pixels = 150, facts.image.most_pixels = 1000, facts.image.axes = true;
  facts.image.more_parts = 2;
  EXPECT_EQ(facts.image.tokens(), 6);  // of 144 pixels
  EXPECT_EQ(facts.image.columns(), 12);
  EXPECT_EQ(facts.image.row_width(), 768);
  EXPECT_EQ(facts.output_width(), 768);
  EXPECT_EQ(*facts_from_json(to_json(facts)), facts);
  facts.encoder = false, facts.takes_images = true;
  EXPECT_FALSE(facts.is_tower());
  EXPECT_EQ(*facts_from_json(to_json(facts)), facts);
}

TEST(PlanFacts, OfAnImageAreChecked) {
  const auto refused = [](auto edit) {
    PlanFacts facts = facts_of_a_tower();
    edit(facts.image);
    return facts_from_json(to_json(facts)).error().message;
  };
  EXPECT_THAT(refused([](ImageFacts& i) { i.patch = 7; }), HasSubstr("with patches of 7"));
  EXPECT_THAT(refused([](ImageFacts& i) { i.pool = 4; }), HasSubstr("squares of 4"));
  EXPECT_THAT(refused([](ImageFacts& i) { i.size = 1 << 20; }), HasSubstr("'size' is 1048576"));
  EXPECT_THAT(refused([](ImageFacts& i) { i.mean.pop_back(); }), HasSubstr("three numbers each"));
  EXPECT_THAT(refused([](ImageFacts& i) { i.deviation[1] = 0; }), HasSubstr("three numbers each"));
  EXPECT_THAT(refused([](ImageFacts& i) { i.keeps_shape = true, i.most_pixels = 100; }),
              HasSubstr("0 to 100 pixels that keeps its shape, in squares of 12"));
  EXPECT_THAT(refused([](ImageFacts& i) { i.most_pixels = 1000; }),
              HasSubstr("0 to 1000 pixels that does not keep its shape"));
  EXPECT_THAT(refused([](ImageFacts& i) {
                i.keeps_shape = true, i.least_pixels = 200, i.most_pixels = 150;
              }),
              HasSubstr("200 to 150 pixels"));
  EXPECT_THAT(refused([](ImageFacts& i) { i.more_parts = 64; }), HasSubstr("'more_parts' is 64"));
  EXPECT_THAT(refused([](ImageFacts& i) { i.mark = ""; }), HasSubstr("nothing marks an image"));
  EXPECT_THAT(refused([](ImageFacts& i) { i.resize = "cubic"; }), HasSubstr("'resize'"));
}

TEST(PlanFacts, TheLastStepGivesLogitsScoresOrHiddenStates) {
  PlanFacts facts;
  facts.vocab_size = 100, facts.hidden_size = 32;
  EXPECT_TRUE(facts.gives_logits());
  EXPECT_EQ(facts.output_width(), 100);
  EXPECT_EQ(no_text_reason(facts), "");
  facts.encoder = true;
  EXPECT_EQ(facts.output_width(), 32);
  EXPECT_THAT(no_text_reason(facts), HasSubstr("POST to /v1/embeddings"));
  facts.scores = 2;
  EXPECT_EQ(facts.output_width(), 2);
  EXPECT_THAT(no_text_reason(facts), HasSubstr("POST to /rerank"));
}

TEST(PlanFacts, OtherSectionsGiveBackEveryField) {
  PlanTarget target;
  target.name = "host", target.isa = "avx512", target.required_isa = {"avx2"};
  target.devices = {{"cpu", 64ll << 30}, {"cuda:0", 24ll << 30}};
  EXPECT_EQ(*target_from_json(to_json(target)), target);
  PlanProvenance provenance;
  provenance.ktx_version = "0.1.0";
  provenance.inputs = {{"gguf", INT64_MAX, {1, 2}}, {"rules", 12, {~0ull, 1ull << 63}}};
  provenance.options = {"--trust=gguf"};
  EXPECT_EQ(*provenance_from_json(to_json(provenance)), provenance);
  PlanChatTemplate chat_template;
  chat_template.source = "{% for m in messages %}\n", chat_template.eos = "</s>";
  chat_template.named = {{"tool_use", "{{ tools }}"}};
  EXPECT_EQ(*chat_template_from_json(to_json(chat_template)), chat_template);
}

TEST(PlanFacts, TextThatIsNoUtf8BecomesText) {
  PlanFacts facts;
  facts.name = "broken \xFF name";
  const auto back = facts_from_json(to_json(facts));
  ASSERT_FALSE(back.ok());  // the numbers are zero
  facts.vocab_size = facts.hidden_size = facts.layers = facts.context_length = 1;
  EXPECT_EQ(facts_from_json(to_json(facts))->name, "broken \xEF\xBF\xBD name");
}

TEST(PlanFacts, SaysWhatIsWrongWithAKey) {
  const auto error = [](std::string_view text) {
    const auto facts = facts_from_json(text);
    return facts.ok() ? "" : facts.error().message;
  };
  EXPECT_EQ(error("{}"), "");
  EXPECT_EQ(error(R"({"vocab_size": 5, "a key of the future": [1, {}]})"), "");
  EXPECT_THAT(error(R"({"vocab_size": "5"})"), HasSubstr("'vocab_size' is of type string"));
  EXPECT_THAT(error(R"({"vocab_size": 0})"), HasSubstr("is 0, expected 1 to"));
  EXPECT_THAT(error(R"({"vocab_size": -1})"), HasSubstr("is -1"));
  EXPECT_THAT(error(R"({"vocab_size": 18446744073709551615})"), HasSubstr("18446744073709551615"));
  EXPECT_THAT(error(R"({"vocab_size": 1e300})"), HasSubstr("expected an integer"));
  EXPECT_THAT(error(R"({"kv_type": "F17"})"), HasSubstr("expected F32, F16, Q8_0"));
  EXPECT_THAT(error("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(error("{\"a\": "), HasSubstr("not valid JSON"));
  EXPECT_THAT(error(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(error("{\"a\": \"\xFF\"}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error("{\"a\": " + std::string(100000, '[')), HasSubstr("deeper than 32"));
  EXPECT_THAT(error(std::string(kMaxJsonBytes + 1, ' ')), HasSubstr("bytes of JSON"));
}

}  // namespace
}  // namespace ktx::plan
