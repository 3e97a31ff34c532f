// `uniqueItems` of free values, which no automaton knows: the text is read as JSON beside it, and a
// byte that would end an item for the second time is refused.
//
//   ["fox", "fo     may go on with   r"   ...   but not with   x"
//   [1, 12, 1       may go on with   3    ...   but not with   ,  or  ]
//
// Which arrays these are follows from the schema: each open object or array keeps the schemas that
// may hold for it. Where one of several (anyOf) wants different items all are kept apart, which is
// narrower than the schema and never wrong.
//
// Bounded: an array has at most kMaxDistinctItems items. Where a type has no value left ([0, 1] of
// integers from 0 to 1, and a third is begun) nothing may follow: the answer ends with an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ktx::text::grammar {

inline constexpr size_t kMaxDistinctItems = 256;

// A part of a schema, and the whole that its `$ref`s are relative to.
struct SchemaPlace {
  const nlohmann::ordered_json* schema = nullptr;
  const nlohmann::ordered_json* root = nullptr;
  bool operator==(const SchemaPlace&) const = default;
};
using SchemaPlaces = std::vector<SchemaPlace>;

// One answer's text so far. Copyable: a copy shares what was read before it and may be thrown away;
// at most one of the copies goes on (keep()), and none is used behind its original's end.
class UniqueItems {
 public:
  // The schemas of the whole text; they outlive this.
  explicit UniqueItems(const SchemaPlaces& root);

  // The text of a grammar of these schemas: anything else gives no sense and no harm. False: an
  // item a second time, or one too many.
  bool take(std::string_view bytes);
  // An array of different items is open. Then only the end of an item can be refused; else only
  // what opens such an array and has two items of it.
  bool watches() const { return watched_ > 0; }
  bool in_string() const { return in_string_; }

  // For a try: a copy whose text begins where this one's ends. This one must not change meanwhile.
  UniqueItems branch() const;
  // What was read by a branch of this becomes a part of this.
  void keep(UniqueItems&& branch);

 private:
  struct Open {
    bool is_array = false;
    bool distinct = false;
    bool at_key = false;                          // of an object: a key comes next
    size_t index = 0;                             // of the item
    size_t begin = 0;                             // of the item, in the text
    std::string key;                              // of the member
    std::shared_ptr<const SchemaPlaces> schemas;  // of the object or array
    std::vector<nlohmann::json> items;  // that are ended; of a branch those since it began
    const std::vector<nlohmann::json>* before = nullptr;  // of a branch: its original's
  };
  explicit UniqueItems(std::shared_ptr<const SchemaPlaces> root);
  bool take(char byte);
  bool end_scalar();
  bool end_value();
  bool has_item(const nlohmann::json& item) const;
  void open(bool is_array);
  bool close();
  std::shared_ptr<const SchemaPlaces> next_schemas() const;
  std::string text_from(size_t begin) const;

  std::shared_ptr<const SchemaPlaces> root_;
  std::vector<Open> open_;
  size_t watched_ = 0;                     // of open_, how many are distinct
  std::string text_;                       // since the first of these began
  const std::string* original_ = nullptr;  // of a branch: what stands before text_
  std::string key_;                        // that is being read
  bool in_string_ = false, escaped_ = false, in_scalar_ = false, in_key_ = false;
};

}  // namespace ktx::text::grammar
