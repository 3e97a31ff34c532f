#include "lib/plan/self_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lib/support/json_nesting.h"

namespace ktx::plan {
namespace {

using TestJson = nlohmann::ordered_json;

constexpr size_t kMostPrompts = 64, kMostPromptTokens = 4096;

// Spread over all bits (the finaliser of splitmix64, Steele et al. 2014).
uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// With the digits of a float.
TestJson float_json(double value) {
  return TestJson::parse(fmt::format("{:.8g}", value), nullptr, false);
}

template <class Numbers>
TestJson float_list(const Numbers& values) {
  TestJson list = TestJson::array();
  for (const auto value : values) list.push_back(float_json(value));
  return list;
}

// The first thing that is wrong, while a self-test is read.
class SelfTestReader {
 public:
  SelfTestReader(const PlanView& plan)
      : vocab_(plan.facts.vocab_size), layers_(plan.facts.layers) {}

  SelfTest read(const TestJson& json) {
    SelfTest test;
    for (const TestJson& prompt : list(json, "prompts", 1, kMostPrompts)) {
      test.prompts.push_back(read_prompt(prompt));
    }
    return test;
  }
  const std::string& wrong() const { return wrong_; }

 private:
  SelfTestPrompt read_prompt(const TestJson& json) {
    SelfTestPrompt prompt;
    prompt.tokens = ids(json, "tokens", 1, kMostPromptTokens);
    const TestJson& answers = list(json, "answers", prompt.tokens.size(), prompt.tokens.size());
    for (const TestJson& answer : answers) {
      SelfTestAnswer& out = prompt.answers.emplace_back();
      out.ids = ids(answer, "ids", 1, kSelfTestBest);
      for (const TestJson& logit : list(answer, "logits", out.ids.size(), out.ids.size())) {
        out.logits.push_back(static_cast<float>(finite(logit)));
      }
      out.log_sum = finite(member(answer, "log_sum"));
    }
    for (const TestJson& stream : list(json, "streams", 0, static_cast<size_t>(layers_) + 1)) {
      SelfTestStream& out = prompt.streams.emplace_back();
      out.layer = static_cast<int32_t>(integer(member(stream, "layer"), -1, layers_ - 1));
      out.norm = finite(member(stream, "norm"));
      const TestJson& sketch = list(stream, "sketch", kSketchNumbers, kSketchNumbers);
      for (size_t i = 0; i < sketch.size(); ++i) {
        out.sketch[i] = static_cast<float>(finite(sketch[i]));
      }
    }
    return prompt;
  }

  std::vector<int32_t> ids(const TestJson& json, const char* key, size_t least, size_t most) {
    std::vector<int32_t> out;
    for (const TestJson& id : list(json, key, least, most)) {
      out.push_back(static_cast<int32_t>(integer(id, 0, vocab_ - 1)));
    }
    return out;
  }
  const TestJson& member(const TestJson& json, const char* key) {
    const auto found = json.is_object() ? json.find(key) : json.end();
    if (json.is_object() && found != json.end()) return *found;
    return fail(fmt::format("has no '{}'", key));
  }
  // Empty once anything is wrong.
  const TestJson& list(const TestJson& json, const char* key, size_t least, size_t most) {
    const TestJson& found = member(json, key);
    if (!wrong_.empty()) return none_;
    if (found.is_array() && found.size() >= least && found.size() <= most) return found;
    return fail(fmt::format("'{}' is no list of {} to {}", key, least, most));
  }
  int64_t integer(const TestJson& json, int64_t least, int64_t most) {
    const int64_t value = json.is_number_integer() ? json.get<int64_t>() : INT64_MIN;
    if (value >= least && value <= most) return value;
    fail(fmt::format("has a number that is not from {} to {}", least, most));
    return 0;
  }
  double finite(const TestJson& json) {
    const double value = json.is_number() ? json.get<double>() : NAN;
    if (std::abs(value) <= 1e30) return value;
    fail("has what is no finite number");
    return 0;
  }
  const TestJson& fail(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
    return none_;
  }

  const int64_t vocab_, layers_;
  const TestJson none_ = TestJson::array();
  std::string wrong_;
};

}  // namespace

Sketch sketch_of(std::span<const float> x) {
  std::array<double, kSketchNumbers> sums = {};
  for (size_t i = 0; i < x.size(); ++i) {
    const uint64_t signs = mixed(i);
    for (size_t k = 0; k < sums.size(); ++k) sums[k] += (signs >> k & 1) != 0 ? x[i] : -x[i];
  }
  Sketch sketch;
  std::ranges::transform(sums, sketch.begin(), [](double sum) { return static_cast<float>(sum); });
  return sketch;
}

double SelfTestStream::difference(std::span<const float> y) const {
  const Sketch other = sketch_of(y);
  double squares = 0;
  for (size_t i = 0; i < sketch.size(); ++i) {
    const double difference = double{other[i]} - sketch[i];
    squares += difference * difference;
  }
  const double distance = std::sqrt(squares / kSketchNumbers);
  if (norm > 0) return distance / norm;
  return distance == 0 ? 0 : INFINITY;
}

SelfTestAnswer answer_of(std::span<const float> logits) {
  SelfTestAnswer answer;
  answer.ids.resize(logits.size());
  std::iota(answer.ids.begin(), answer.ids.end(), 0);
  const size_t best = std::min(kSelfTestBest, logits.size());
  std::partial_sort(
      answer.ids.begin(), answer.ids.begin() + static_cast<int64_t>(best), answer.ids.end(),
      [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  answer.ids.resize(best);
  for (const int32_t id : answer.ids) answer.logits.push_back(logits[id]);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - answer.logits[0]);
  answer.log_sum = answer.logits[0] + std::log(sum);
  return answer;
}

std::string to_json(const SelfTest& test) {
  TestJson json = {{"prompts", TestJson::array()}};
  for (const SelfTestPrompt& prompt : test.prompts) {
    TestJson answers = TestJson::array(), streams = TestJson::array();
    for (const SelfTestAnswer& answer : prompt.answers) {
      answers.push_back({{"ids", answer.ids},
                         {"logits", float_list(answer.logits)},
                         {"log_sum", float_json(answer.log_sum)}});
    }
    for (const SelfTestStream& stream : prompt.streams) {
      streams.push_back({{"layer", stream.layer},
                         {"norm", float_json(stream.norm)},
                         {"sketch", float_list(stream.sketch)}});
    }
    json["prompts"].push_back(
        {{"tokens", prompt.tokens}, {"answers", answers}, {"streams", streams}});
  }
  return json.dump() + "\n";
}

Result<SelfTest> read_self_test(const PlanView& plan) {
  const auto section = std::ranges::find(plan.sections, static_cast<uint32_t>(SectionId::SelfTest),
                                         &SectionEntry::id);
  if (section == plan.sections.end() || section->size == 0) {
    return Error{
        "the plan has no self-test; add one, with the rules and options used before: ktx-compile PLAN --selftest 2 -o PLAN"};
  }
  const auto bytes = plan.file.subspan(section->offset, section->size);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (plan.part_of) return Error{"a host's part of a plan has no self-test; name the whole plan"};
  if (!(hash_bytes(bytes) == section->hash)) {
    return Error{"section 'self-test' is damaged; compile again"};
  }
  if (text.size() > kMaxJsonBytes || json_nesting(text) > kMaxJsonDepth) {
    return Error{
        fmt::format("section 'self-test': {} bytes of JSON, more than {} or nested deeper "
                    "than {}",
                    text.size(), kMaxJsonBytes, kMaxJsonDepth)};
  }
  const TestJson json = TestJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Error{"section 'self-test' is not valid JSON; compile again"};
  SelfTestReader reader(plan);
  SelfTest test = reader.read(json);
  if (reader.wrong().empty()) return test;
  return Error{fmt::format("section 'self-test' {}; compile again", reader.wrong())};
}

}  // namespace ktx::plan
