#include "lib/text/chat_template/known_templates.h"

#include <fmt/format.h>

#include "lib/support/mapped_file.h"
#include "lib/support/strings.h"
#include "lib/text/chat_template/chat_template.h"

namespace ktx::text {
namespace {

struct KnownTemplate {
  std::string_view name, models, text;
};
constexpr KnownTemplate kKnownTemplates[] = {
#define KTX_KNOWN_TEMPLATE(name, models, text) {name, models, text},
#include "lib/text/chat_template/known_templates.def"
};

}  // namespace

std::vector<std::string> known_template_names() {
  std::vector<std::string> names;
  for (const KnownTemplate& known : kKnownTemplates) names.emplace_back(known.name);
  return names;
}

Result<std::string> template_of(std::string_view given) {
  for (const KnownTemplate& known : kKnownTemplates) {
    if (known.name == given) return std::string(known.text);
  }
  const bool is_template = given.find("{{") != given.npos || given.find("{%") != given.npos;
  if (is_template) return std::string(given);
  const std::vector<std::string> names = known_template_names();
  return Error{fmt::format("no chat template is called '{}'{}; known are {}", printable(given),
                           did_you_mean(given, names), join(names, ", "))};
}

Result<std::optional<std::string>> chosen_template(const std::optional<std::string>& name_or_text,
                                                   const std::optional<std::string>& file) {
  std::optional<std::string> chosen;
  if (name_or_text) {
    Result<std::string> known = template_of(*name_or_text);
    if (!known) return Error{"--chat-template: " + known.error().message};
    chosen = known.take();
  } else if (file) {
    chosen = KTX_TRY(read_text_file(*file, kMaxTemplateBytes));
  }
  if (!chosen) return chosen;
  const Result<ChatTemplate> parsed = ChatTemplate::parse(*chosen);
  if (parsed) return chosen;
  return Error{file && !name_or_text ? fmt::format("{}: {}", *file, parsed.error().message)
                                     : "--chat-template: " + parsed.error().message};
}

}  // namespace ktx::text
