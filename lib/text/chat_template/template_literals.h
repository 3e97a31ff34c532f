// The names and texts in a parsed chat template.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "lib/text/chat_template/jinja_ast.h"

namespace ktx::text::jinja {

struct TemplateNames {
  std::set<std::string> variables, set, fields, calls;
};
struct TemplateLiteral {
  std::string text;
  bool printed = true;  // not only compared, or a name of an item
};

void collect(const Body& body, TemplateNames& names, std::vector<TemplateLiteral>& literals);

}  // namespace ktx::text::jinja
