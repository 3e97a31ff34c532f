#include "tools/ktx-run/score_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/support/json_nesting.h"
#include "lib/support/strings.h"

namespace ktx::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxNesting = 64;

Status take_text(Json& line, const char* key, std::string& out) {
  const auto found = line.find(key);
  if (found == line.end()) return {};
  if (!found->is_string())
    return Error{fmt::format("'{}' is {}, expected a text", key, found->type_name())};
  out = found->get<std::string>();
  line.erase(key);
  return {};
}

Status take_ids(Json& line, const char* key, std::vector<int32_t>& out) {
  const auto found = line.find(key);
  if (found == line.end()) return {};
  const auto is_id = [](const Json& id) {
    return id.is_number_integer() && id >= 0 && id <= INT32_MAX;
  };
  if (!found->is_array() || !std::ranges::all_of(*found, is_id)) {
    return Error{fmt::format("'{}' is not a list of token ids", key)};
  }
  out = found->get<std::vector<int32_t>>();
  line.erase(key);
  return {};
}

Result<ScoreLine> parse_line(std::string_view text) {
  if (json_nesting(text) > kMaxNesting) {
    return Error{fmt::format("is nested more than {} deep", kMaxNesting)};
  }
  if (json_member_pairs(text) > kMaxMemberPairs || json_tree_bytes(text) > kMaxTreeBytes) {
    return Error{"has too many fields or values"};
  }
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return Error{R"(is no JSON object such as {"prompt": "2 + 2 =", "text": " 4"})"};
  }
  ScoreLine line;
  const bool has_text = json.contains("text"), has_ids = json.contains("ids");
  if (has_text == has_ids) return Error{"needs one of 'text' and 'ids'"};
  if (json.contains(has_text ? "prompt_ids" : "prompt")) {
    return Error{has_text ? "has 'prompt_ids' beside 'text'; write 'prompt', or 'ids'"
                          : "has 'prompt' beside 'ids'; write 'prompt_ids', or 'text'"};
  }
  line.of_ids = has_ids;
  KTX_TRY(take_text(json, "prompt", line.prompt));
  KTX_TRY(take_text(json, "text", line.text));
  KTX_TRY(take_ids(json, "prompt_ids", line.prompt_ids));
  KTX_TRY(take_ids(json, "ids", line.ids));
  line.rest = std::move(json);
  return line;
}

}  // namespace

Result<std::vector<ScoreLine>> parse_score_lines(std::string_view text, const std::string& name) {
  std::vector<ScoreLine> lines;
  std::vector<std::string> errors;
  int64_t number = 0;
  for (const std::string_view each : split(text, '\n')) {
    ++number;
    if (each.find_first_not_of(" \t\r") == each.npos) continue;
    Result<ScoreLine> line = parse_line(each);
    if (line) {
      line->number = number;
      lines.push_back(line.take());
    } else if (errors.size() < kMostErrors) {
      errors.push_back(fmt::format("{}:{}: {}", name, number, line.error().message));
    }
  }
  if (!errors.empty()) return Error{join(errors, "\n")};
  if (lines.empty()) return Error{name + ": has no lines"};
  return lines;
}

Result<ScoreTokens> score_tokens(const ScoreLine& line, const text::Tokenizer& tokenizer,
                                 int64_t vocabulary) {
  ScoreTokens tokens;
  if (line.of_ids) {
    tokens.ids = line.prompt_ids;
    tokens.begin = std::ssize(line.prompt_ids);
    tokens.ids.insert(tokens.ids.end(), line.ids.begin(), line.ids.end());
  } else {
    tokens.ids = tokenizer.encode_prompt(line.prompt + line.text);
    // Tokens that lie in both count as the text's.
    const std::vector<int32_t> prompt = tokenizer.encode_prompt(line.prompt);
    tokens.begin = std::ranges::mismatch(tokens.ids, prompt).in1 - tokens.ids.begin();
  }
  for (const int32_t id : tokens.ids) {
    if (id < vocabulary) continue;
    return Error{fmt::format("token {} is not in the vocabulary of {}", id, vocabulary)};
  }
  if (tokens.begin >= std::ssize(tokens.ids)) return Error{"the text has no tokens"};
  return tokens;
}

std::string score_answer(const ScoreLine& line, const ScoreTokens& tokens,
                         const std::vector<runtime::Logprobs>& logprobs) {
  Json ids = Json::array(), each = Json::array();
  double sum = 0;
  int64_t scored = 0;
  bool greedy = true;
  for (int64_t i = tokens.begin; i < std::ssize(tokens.ids); ++i) {
    const int32_t id = tokens.ids[static_cast<size_t>(i)];
    ids.push_back(id);
    if (i == 0) {  // nothing stands before it
      each.push_back(nullptr);
      continue;
    }
    const auto at = static_cast<size_t>(i - std::max<int64_t>(1, tokens.begin));
    const runtime::Logprobs& found = logprobs[at];
    each.push_back(found.logprob);
    sum += found.logprob;
    greedy = greedy && found.top[0].id == id;
    ++scored;
  }
  Json json = line.rest;
  json["logprob"] = sum;
  json["tokens"] = scored;
  json["greedy"] = greedy;
  json["ids"] = std::move(ids);
  json["logprobs"] = std::move(each);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ktx::tools
