// A model's chat template: renders a conversation as a prompt.
//
//   ChatTemplate chat = KTX_TRY(ChatTemplate::parse(source));
//   RenderInput input;
//   input.messages = {{{"role", "user"}, {"content", "Hi"}}};
//   input.bos_token = "<s>";
//   std::string prompt = KTX_TRY(chat.render(input));
//
// Templates are Jinja2 as Hugging Face's tokenizers render it (docs: jinja_*.h):
// same white space, same filters, same printing, same errors. Differences, all on
// the safe side: integers are 64-bit, `tojson` takes what map() returns, and
// limits on steps, depth, memory and output end a hostile template.
//
// Safe for untrusted templates and conversations. A ChatTemplate is immutable and
// may render on many threads at once.
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/support/result.h"
#include "lib/text/chat_template/render_limits.h"
#include "lib/text/text_spans.h"

namespace ktx::text {

struct RenderInput {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools;  // null (none): the template sees `none`, as in HF
  bool add_generation_prompt = true;
  // Undefined in the template when absent, as for a tokenizer without them.
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  // More variables, by name (`enable_thinking`, `documents`, …); they win over
  // the ones above.
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();
  // Parts of the assistant's messages that are as good as the template's own, for
  // render_marked(): the tags of its reasoning.
  std::vector<std::string> answer_tags;
  std::optional<std::tm> now;  // for strftime_now; the local time when absent
  RenderLimits limits;
};

class ChatTemplate {
 public:
  // An error reads "chat template:LINE:COL: message"; lines and columns from 1.
  static Result<ChatTemplate> parse(std::string_view source);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  Result<std::string> render(const RenderInput& input) const;
  // The same, and which of its bytes came from outside of the template: from messages (but for
  // their roles), tools and extra variables, through all that the template does with them.
  Result<MarkedText> render_marked(const RenderInput& input) const;
  const std::string& source() const;

 private:
  struct Parsed;
  explicit ChatTemplate(std::unique_ptr<const Parsed> parsed);
  std::unique_ptr<const Parsed> parsed_;
};

// "2026-01-02", "2026-01-02 03:04", "2026-01-02T03:04:05" (local time, any zone
// suffix refused), or seconds since 1970 (read as UTC).
Result<std::tm> parse_time(std::string_view text);

}  // namespace ktx::text
