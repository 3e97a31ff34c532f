#include "lib/text/chat_template/chat_case.h"

#include <fmt/format.h>

#include "lib/support/strings.h"
#include "lib/text/exact_json.h"

namespace ktx::text {
namespace {

using Json = nlohmann::ordered_json;

Error wrong_type(std::string_view key, std::string_view wanted, const Json& value) {
  return Error{fmt::format("chat case: '{}' is {}, expected {}", key, value.type_name(), wanted)};
}

}  // namespace

Result<RenderInput> parse_chat_case(std::string_view case_json, const RenderInput& base) {
  Json json = parse_json(case_json);
  // The only exceptions here are nlohmann's; without a text that parses there is
  // nothing to say but where it does not.
  try {
    if (json.is_discarded()) json = Json::parse(case_json);
  } catch (const std::exception& e) {
    return Error{fmt::format("chat case: not JSON: {}", e.what())};
  }
  if (!json.is_object()) return wrong_type("the case", "an object", json);
  RenderInput input = base;
  bool has_messages = false;
  for (const auto& [key, value] : json.items()) {
    if (key == "messages") {
      if (!value.is_array()) return wrong_type(key, "an array", value);
      input.messages = value;
      has_messages = true;
    } else if (key == "tools") {
      if (!value.is_array() && !value.is_null()) return wrong_type(key, "an array", value);
      input.tools = value;
    } else if (key == "gen") {
      if (!value.is_boolean()) return wrong_type(key, "true or false", value);
      input.add_generation_prompt = value.get<bool>();
    } else if (key == "extra") {
      if (!value.is_object() && !value.is_null()) return wrong_type(key, "an object", value);
      if (value.is_object()) {
        input.extra = value;
        input.extra.update(base.extra);
      }
    } else {
      const std::vector<std::string> known = {"messages", "tools", "gen", "extra"};
      return Error{
          fmt::format("chat case: unknown key '{}'{}", printable(key), did_you_mean(key, known))};
    }
  }
  if (!has_messages) return Error{"chat case: no 'messages'"};
  return input;
}

Result<std::string> render_chat_case(const ChatTemplate& chat, std::string_view case_json,
                                     const RenderInput& base) {
  return chat.render(KTX_TRY(parse_chat_case(case_json, base)));
}

}  // namespace ktx::text
