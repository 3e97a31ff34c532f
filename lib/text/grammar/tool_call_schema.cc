#include "lib/text/grammar/tool_call_schema.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/text/grammar/json_parts.h"
#include "lib/text/grammar/json_schema.h"
#include "lib/text/grammar/schema_keywords.h"

namespace ktx::text::grammar {
namespace {

using Json = nlohmann::ordered_json;

bool is_empty(const Json& schema, const char* keyword) {
  const auto value = schema.find(keyword);
  return value == schema.end() || value->is_null() || (value->is_structured() && value->empty());
}

bool takes_nothing(const Json& schema) {
  if (!is_empty(schema, "properties") || !is_empty(schema, "required")) return false;
  Json rest = schema;
  for (const char* keyword : {"type", "properties", "required"}) rest.erase(keyword);
  for (const char* keyword : {"additionalProperties", "unevaluatedProperties"}) {
    if (rest.contains(keyword) && rest[keyword] == Json(false)) rest.erase(keyword);
  }
  return says_nothing(rest, "");
}

// The schema of arguments: that of the tool, of objects alone. False: they are {}.
Result<Json> arguments_schema(const Json& parameters) {
  if (!parameters.is_object()) return Error{"expected a JSON schema"};
  Json out = parameters;
  if (parameters.contains("type") && !parameters["type"].is_null()) {
    const std::vector<std::string> types = KTX_TRY(type_names(parameters, "#"));
    if (std::find(types.begin(), types.end(), "object") == types.end()) {
      return schema_error("#", "the arguments of a tool are an object; write \"type\": \"object\"");
    }
  }
  out["type"] = "object";
  out.erase("nullable");
  return takes_nothing(out) ? Json(false) : out;
}

}  // namespace

std::string_view arguments_key(CallForm form) {
  return form == CallForm::Llama3 ? "parameters" : "arguments";
}

Result<GrammarRules> tool_call_rules(std::span<const CallableTool> tools, CallForm form,
                                     const AnswerFormat* format) {
  GrammarRules g;
  JsonParts parts(g);
  SchemaWork work;
  g.root = g.add_rule("root");
  // Its notes and its error begin with the place.
  const auto add = [&](const Result<Json>& schema, const std::string& place) -> Result<int> {
    const size_t noted = g.notes.size();
    const auto values = [&]() -> Result<int> {
      if (!schema) return schema.error();
      if (*schema == Json(false)) return g.text("{}");
      return add_schema(*schema, g, parts, work);
    }();
    for (size_t i = noted; i < g.notes.size(); ++i) {
      g.notes[i] = fmt::format("{}: {}", place, g.notes[i]);
    }
    // The model need not make this call: its schema does not refuse the request.
    if (!values && work.lenient && !g.too_large()) {
      add_note(fmt::format("{}: {}; its arguments are any object", place, values.error().message),
               &g.notes);
      return parts.any_object();
    }
    if (!values) return Error{fmt::format("{}: {}", place, values.error().message)};
    return values;
  };
  const std::string key = json_quoted(arguments_key(form));
  std::vector<int> calls;
  work.lenient = form != CallForm::Forced;
  for (const CallableTool& tool : tools) {
    const int arguments = KTX_TRY(add(arguments_schema(tool.parameters), tool.place));
    const int name = parts.member(g.text("\"name\""), g.text(json_quoted(tool.name)));
    const int value = parts.member(g.text(key), arguments);
    calls.push_back(parts.object(g.sequence({name, parts.separator(), value})));
  }
  work.lenient = false;
  const int answer = format != nullptr ? KTX_TRY(add(format->schema, format->place)) : -1;
  int whole = g.alternatives(std::move(calls));
  if (form == CallForm::Llama3) whole = g.alternatives({whole, answer});
  if (form == CallForm::Generic) {
    const int call = g.add_rule("call");
    g.set_rule(call, whole);
    const auto only = [&](const char* key, int value) {
      return parts.object(parts.member(g.text(json_quoted(key)), value));
    };
    const int several = parts.array(g.list(g.rule(call), parts.separator(), 1, kNoLimit));
    whole = g.alternatives({only("tool_call", g.rule(call)), only("tool_calls", several),
                            only("response", answer < 0 ? parts.string(0, kNoLimit) : answer)});
  }
  g.set_rule(g.root, g.sequence({parts.space(), whole}));
  return g;
}

}  // namespace ktx::text::grammar
