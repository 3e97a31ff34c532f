#include "lib/text/chat_template/chat_template.h"

#include <fmt/format.h>
#include <time.h>

#include <charconv>

#include "lib/support/strings.h"
#include "lib/text/chat_template/jinja_interpreter.h"
#include "lib/text/chat_template/jinja_json.h"
#include "lib/text/chat_template/jinja_parser.h"

namespace ktx::text {

struct ChatTemplate::Parsed {
  std::string source;
  jinja::Body body;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

const std::string& ChatTemplate::source() const {
  return parsed_->source;
}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  auto parsed = std::make_unique<Parsed>();
  parsed->source = std::string(source);
  parsed->body = KTX_TRY(jinja::parse_template(source));
  return ChatTemplate(std::move(parsed));
}

Result<std::string> ChatTemplate::render(const RenderInput& input) const {
  return std::move(KTX_TRY(render_marked(input)).text);
}

Result<MarkedText> ChatTemplate::render_marked(const RenderInput& input) const {
  std::tm now = {};
  if (input.now) {
    now = *input.now;
  } else {
    const std::time_t seconds = std::time(nullptr);
    localtime_r(&seconds, &now);
  }
  jinja::Interpreter interpreter(parsed_->body, input.limits, now);
  jinja::Meter& meter = interpreter.meter();
  if (!input.messages.is_array()) {
    return Error{fmt::format("messages: expected an array, got {}", input.messages.type_name())};
  }
  if (!input.extra.is_object() && !input.extra.is_null()) {
    return Error{
        fmt::format("extra variables: expected an object, got {}", input.extra.type_name())};
  }
  interpreter.set("messages",
                  KTX_TRY(jinja::from_messages(meter, input.messages, input.answer_tags)));
  interpreter.set("tools", KTX_TRY(jinja::from_json(meter, input.tools, true)));
  interpreter.set("documents", jinja::Value::none());
  interpreter.set("add_generation_prompt", jinja::Value::boolean(input.add_generation_prompt));
  if (input.bos_token) interpreter.set("bos_token", jinja::make_string(meter, *input.bos_token));
  if (input.eos_token) interpreter.set("eos_token", jinja::make_string(meter, *input.eos_token));
  for (const auto& [name, value] : input.extra.items()) {
    interpreter.set(name, KTX_TRY(jinja::from_json(meter, value, true)));
  }
  return interpreter.run();
}

Result<std::tm> parse_time(std::string_view text) {
  const auto bad = [&] {
    return Error{
        fmt::format("time '{}': expected YYYY-MM-DD, YYYY-MM-DDTHH:MM:SS or seconds since "
                    "1970",
                    printable(text))};
  };
  std::tm tm = {};
  if (!text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos) {
    int64_t seconds = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    const std::time_t time = seconds;
    if (error != std::errc() || seconds > 253'402'300'799 || gmtime_r(&time, &tm) == nullptr) {
      return bad();  // past the year 9999
    }
    return tm;
  }
  static constexpr const char* kForms[] = {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S",
                                           "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%d"};
  const std::string copy(text);
  for (const char* form : kForms) {
    tm = {};
    const char* end = strptime(copy.c_str(), form, &tm);
    if (end != copy.c_str() + copy.size()) continue;
    // timegm fills in the day of the week and of the year, and normalises.
    const std::tm asked = tm;
    if (timegm(&tm) == -1 && asked.tm_year != 69) return bad();
    if (tm.tm_mday != asked.tm_mday || tm.tm_mon != asked.tm_mon) return bad();
    return tm;
  }
  return bad();
}

}  // namespace ktx::text
