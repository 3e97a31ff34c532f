#include "lib/text/grammar/unique_items.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "lib/text/grammar/schema_pointer.h"

namespace ktx::text::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostSchemas = 256;  // for one place

// Adds a schema and those that hold, or may hold, for the same value.
void add_places(const Json* schema, const Json* root, SchemaPlaces& out) {
  SchemaPlaces todo = {{schema, root}};
  while (!todo.empty() && out.size() < kMostSchemas) {
    const SchemaPlace place = todo.back();
    todo.pop_back();
    if (place.schema == nullptr || !place.schema->is_object()) continue;
    if (std::find(out.begin(), out.end(), place) != out.end()) continue;
    out.push_back(place);
    const auto add = [&](const Json& part) { todo.push_back({&part, place.root}); };
    for (const auto& [key, value] : place.schema->items()) {
      if (key == "$ref" && value.is_string()) {
        const auto target = resolve_pointer(*place.root, value.get<std::string>(), "");
        if (target) todo.push_back({*target, place.root});
      } else if (key == "allOf" || key == "anyOf" || key == "oneOf") {
        if (value.is_array()) std::for_each(value.begin(), value.end(), add);
      } else if (key == "if" || key == "then" || key == "else") {
        add(value);
      } else if ((key == "dependentSchemas" || key == "dependencies") && value.is_object()) {
        std::for_each(value.begin(), value.end(), add);
      }
    }
  }
}

// The schemas of a member, or of an item.
void add_children(const SchemaPlace& place, const std::string* key, size_t index,
                  SchemaPlaces& out) {
  const Json& schema = *place.schema;
  const auto add = [&](const Json& part) { add_places(&part, place.root, out); };
  const auto of = [&](const char* name) -> const Json* {
    const auto found = schema.find(name);
    return found == schema.end() ? nullptr : &*found;
  };
  if (key != nullptr) {
    const Json* named = of("properties");
    if (named != nullptr && named->is_object() && named->contains(*key)) add((*named)[*key]);
    // Which of the patterns is the key's does not matter: all may be.
    const Json* patterns = of("patternProperties");
    if (patterns != nullptr && patterns->is_object()) {
      std::for_each(patterns->begin(), patterns->end(), add);
    }
    for (const char* others : {"additionalProperties", "unevaluatedProperties"}) {
      if (const Json* part = of(others)) add(*part);
    }
    return;
  }
  for (const char* list : {"prefixItems", "items"}) {
    const Json* parts = of(list);
    if (parts == nullptr) continue;
    if (!parts->is_array()) {
      add(*parts);
    } else if (index < parts->size()) {
      add((*parts)[index]);
    }
  }
  for (const char* others : {"additionalItems", "unevaluatedItems", "contains"}) {
    if (const Json* part = of(others)) add(*part);
  }
}

bool wants_distinct(const SchemaPlaces& places) {
  return std::any_of(places.begin(), places.end(), [](const SchemaPlace& place) {
    const auto unique = place.schema->find("uniqueItems");
    return unique != place.schema->end() && *unique == Json(true);
  });
}

}  // namespace

UniqueItems::UniqueItems(std::shared_ptr<const SchemaPlaces> root) : root_(std::move(root)) {}

UniqueItems::UniqueItems(const SchemaPlaces& root) {
  SchemaPlaces all;
  for (const SchemaPlace& place : root) add_places(place.schema, place.root, all);
  root_ = std::make_shared<const SchemaPlaces>(std::move(all));
}

std::shared_ptr<const SchemaPlaces> UniqueItems::next_schemas() const {
  if (open_.empty()) return root_;
  const Open& parent = open_.back();
  SchemaPlaces out;
  for (const SchemaPlace& place : *parent.schemas) {
    add_children(place, parent.is_array ? nullptr : &parent.key, parent.index, out);
  }
  return std::make_shared<const SchemaPlaces>(std::move(out));
}

std::string UniqueItems::text_from(size_t begin) const {
  const size_t before = original_ != nullptr ? original_->size() : 0;
  if (begin >= before) return text_.substr(begin - before);
  return original_->substr(begin) + text_;
}

void UniqueItems::open(bool is_array) {
  Open one;
  one.is_array = is_array;
  one.schemas = next_schemas();
  one.distinct = is_array && wants_distinct(*one.schemas);
  one.at_key = !is_array;
  watched_ += one.distinct;
  one.begin = text_.size() + (original_ != nullptr ? original_->size() : 0);
  open_.push_back(std::move(one));
}

// A value has ended: false where it is an item that was there before.
bool UniqueItems::end_value() {
  if (open_.empty()) return true;
  Open& parent = open_.back();
  if (!parent.distinct) return true;
  nlohmann::json item = nlohmann::json::parse(text_from(parent.begin), nullptr, false);
  if (item.is_discarded()) return true;
  if (has_item(item)) return false;
  parent.items.push_back(std::move(item));
  return true;
}

// Whether the innermost array already has the item, if its items must differ.
bool UniqueItems::has_item(const nlohmann::json& item) const {
  if (open_.empty() || !open_.back().distinct) return false;
  const auto has = [&](const std::vector<nlohmann::json>& items) {
    return std::find(items.begin(), items.end(), item) != items.end();
  };
  const Open& parent = open_.back();
  return has(parent.items) || (parent.before != nullptr && has(*parent.before));
}

bool UniqueItems::end_scalar() {
  return !std::exchange(in_scalar_, false) || end_value();
}

bool UniqueItems::close() {
  if (open_.empty()) return true;
  watched_ -= open_.back().distinct;
  open_.pop_back();
  return end_value();
}

bool UniqueItems::take(char byte) {
  if (in_string_) {
    if (in_key_ && (escaped_ || byte != '"')) key_ += byte;
    if (escaped_) {
      escaped_ = false;
    } else if (byte == '\\') {
      escaped_ = true;
    } else if (byte == '"') {
      in_string_ = false;
      if (watched_ > 0) text_ += byte;
      if (!std::exchange(in_key_, false)) return end_value();
      const auto name = nlohmann::json::parse('"' + key_ + '"', nullptr, false);
      open_.back().key = name.is_string() ? name.get<std::string>() : key_;
      return true;
    }
    if (watched_ > 0) text_ += byte;
    return true;
  }
  const bool ends_scalar = std::string_view(",]} \t\r\n").find(byte) != std::string_view::npos;
  if (ends_scalar && !end_scalar()) return false;
  const size_t here = text_.size() + (original_ != nullptr ? original_->size() : 0);
  bool ok = true;
  switch (byte) {
    case '"':
      in_string_ = true;
      in_key_ = !open_.empty() && open_.back().at_key;
      key_.clear();
      if (in_key_) open_.back().at_key = false;
      break;
    case '{':
    case '[':
      if (watched_ > 0) text_ += byte;
      open(byte == '[');
      return true;
    case '}':
    case ']':
      if (watched_ > 0) text_ += byte;
      ok = close();
      // Without an open array nothing of the text is needed any more.
      if (watched_ == 0 && original_ == nullptr) text_.clear();
      return ok;
    case ',':
      if (open_.empty()) break;
      open_.back().at_key = !open_.back().is_array;
      ++open_.back().index;
      open_.back().begin = here + (watched_ > 0 ? 1 : 0);
      ok = !open_.back().distinct || open_.back().index < kMaxDistinctItems;
      break;
    case ':':
    case ' ':
    case '\t':
    case '\r':
    case '\n':
      break;
    default:
      // Nothing but its end follows the first letter of a literal.
      if (!in_scalar_ && std::string_view("tfn").find(byte) != std::string_view::npos) {
        ok = !has_item(byte == 'n' ? nlohmann::json() : nlohmann::json(byte == 't'));
      }
      in_scalar_ = true;
  }
  if (watched_ > 0) text_ += byte;
  return ok;
}

bool UniqueItems::take(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [this](char byte) { return take(byte); });
}

UniqueItems UniqueItems::branch() const {
  UniqueItems out(root_);
  out.original_ = &text_;
  out.open_.reserve(open_.size() + 4);
  for (const Open& one : open_) {
    Open& copy = out.open_.emplace_back();
    copy.is_array = one.is_array;
    copy.distinct = one.distinct;
    copy.at_key = one.at_key;
    copy.index = one.index;
    copy.begin = one.begin;
    copy.key = one.key;
    copy.schemas = one.schemas;
    if (one.distinct) copy.before = &one.items;
  }
  out.watched_ = watched_;
  out.key_ = key_;
  out.in_string_ = in_string_;
  out.escaped_ = escaped_;
  out.in_scalar_ = in_scalar_;
  out.in_key_ = in_key_;
  return out;
}

void UniqueItems::keep(UniqueItems&& branch) {
  std::string text = std::move(text_) + branch.text_;
  for (size_t i = 0; i < branch.open_.size(); ++i) {
    Open& one = branch.open_[i];
    if (!one.before) continue;
    std::vector<nlohmann::json> items = std::move(open_[i].items);
    std::move(one.items.begin(), one.items.end(), std::back_inserter(items));
    one.items = std::move(items);
    one.before = nullptr;
  }
  *this = std::move(branch);
  text_ = watched_ > 0 ? std::move(text) : std::string();
  original_ = nullptr;
}

}  // namespace ktx::text::grammar
