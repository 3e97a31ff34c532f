// Tool calls of Gemma 4: a notation of its own for the arguments, which becomes JSON.
//
//   <|tool_call>call:f{city:<|"|>Paris<|"|>,days:[1,2],deep:{x:true}}<tool_call|>
//     ->  f {"city": "Paris", "days": [1, 2], "deep": {"x": true}}
#include "lib/text/answers/call_formats.h"

namespace ktx::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 64;

// Adds the values of a call to a text of JSON. Nothing is taken back: while the call grows, the
// text of its whole members is the beginning of what it will be.
class GemmaArguments {
 public:
  GemmaArguments(CallCursor& in, CallRead& read) : in_(in), read_(read) {}

  // From its opening bracket to behind its closing one.
  CallState object(int depth) {
    KTX_STEP(open("{", depth));
    const auto note_whole_members = [&] {
      if (depth == 0) read_.arguments = json_;
    };
    note_whole_members();
    return items("}", [&] {
      KTX_STEP(key());
      KTX_STEP(value(depth));
      note_whole_members();
      return CallState::Call;
    });
  }
  const std::string& json() const { return json_; }

 private:
  CallState open(std::string_view bracket, int depth) {
    if (depth > kMaxDepth) return CallState::No;
    in_.space();
    KTX_STEP(in_.literal(bracket));
    json_ += bracket;
    return CallState::Call;
  }

  // A bracket may be missing where the call ends, and where another one closes.
  CallState closes(std::string_view bracket) {
    in_.space();
    CallCursor at_end = in_;
    const CallState end = at_end.literal(kGemmaCallEnd);
    if (end == CallState::More) return end;
    const bool other = in_.stands(bracket == "]" ? "}" : "]");
    if (end == CallState::No && !other) KTX_STEP(in_.literal(bracket));
    json_ += bracket;
    return CallState::Call;
  }

  // Up to the closing bracket; a comma may stand in front of it.
  template <class Item>
  CallState items(std::string_view bracket, const Item& item) {
    for (bool first = true;; first = false) {
      CallState end = closes(bracket);
      if (end != CallState::No) return end;
      if (!first) {
        in_.space();
        KTX_STEP(in_.literal(","));
        end = closes(bracket);
        if (end != CallState::No) return end;
        json_ += ", ";
      }
      KTX_STEP(item());
    }
  }

  CallState list(int depth) {
    KTX_STEP(open("[", depth));
    return items("]", [&] { return value(depth); });
  }

  // A bare word, or a string.
  CallState key() {
    std::string_view name;
    in_.space();
    const CallState marked = in_.literal(kGemmaQuote);
    if (marked == CallState::More) return marked;
    if (marked == CallState::Call) KTX_STEP(in_.value(kGemmaQuote, name));
    std::string_view bare;
    KTX_STEP(in_.until(":", bare));
    if (bare.find_first_of("{}[],<\n") != std::string_view::npos) return CallState::No;
    KTX_STEP(in_.literal(":"));
    if (marked == CallState::No) name = unquoted(bare);
    if (name.empty()) return CallState::No;
    json_ += print(name) + ": ";
    return CallState::Call;
  }

  CallState value(int depth) {
    in_.space();
    if (in_.at_end()) return in_.at_most();
    if (in_.next() == '{') return object(depth + 1);
    if (in_.next() == '[') return list(depth + 1);
    for (const std::string_view quote :
         {kGemmaQuote, std::string_view("\""), std::string_view("'")}) {
      if (in_.next() != quote[0]) continue;
      std::string_view text;
      KTX_STEP(in_.literal(quote));
      KTX_STEP(in_.value(quote, text));
      json_ += print(text);
      return CallState::Call;
    }
    std::string_view word;
    KTX_STEP(in_.word(word));
    const std::string json = json_of_word(word);
    if (json.empty()) return CallState::No;
    json_ += json;
    return CallState::Call;
  }

  static std::string print(std::string_view text) {
    return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  CallCursor& in_;
  CallRead& read_;
  std::string json_;
};

}  // namespace

CallState read_gemma(CallCursor& in, std::span<const OfferedTool>, CallRead& read) {
  std::string_view name;
  KTX_STEP(in.opener(kGemmaCall));
  KTX_STEP(in.until({"{", kGemmaCallEnd}, name));
  name = trimmed(name);
  if (name.empty() || name.find_first_of(" \n<\"") != std::string_view::npos) return CallState::No;
  read.begun = true;
  read.name = name;
  GemmaArguments arguments(in, read);
  const bool none = in.stands(kGemmaCallEnd);
  if (!none) KTX_STEP(arguments.object(0));
  KTX_STEP(in.closer(kGemmaCallEnd));
  read.calls.push_back({std::string(name), none ? "{}" : arguments.json(), ""});
  return CallState::Call;
}

}  // namespace ktx::text
