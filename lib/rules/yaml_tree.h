// YAML as a tree in which every node has its place in the file.
//
//   YamlRef root = parse_yaml(bytes, "rules.yaml", diags);   // null: see diags
//   root->items[0]->find("match")->loc.line
//
// yaml-cpp's own tree drops duplicate keys and the extent of quoted scalars, which the messages
// need; its events keep them. Scalars follow PyYAML where rule files depend on it: the plain
// scalar None is a text; null and ~ are null.
//
// Safe for untrusted text: size, depth and number of nodes are bounded, aliases share their
// node, and tags construct nothing.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/support/diag.h"

namespace ktx::rules {

struct YamlNode;
using YamlRef = std::shared_ptr<const YamlNode>;

struct YamlNode {
  enum class Kind { Null, Scalar, List, Map };
  Kind kind = Kind::Null;
  std::string text;     // of a scalar
  bool quoted = false;  // a quoted scalar is a text, whatever it looks like
  SourceLoc loc;        // of a scalar: the whole token, quotes included
  std::vector<YamlRef> items;
  std::vector<std::pair<YamlRef, YamlRef>> fields;  // in file order, keys unique

  bool is_null() const { return kind == Kind::Null; }
  bool is_scalar() const { return kind == Kind::Scalar; }
  bool is_list() const { return kind == Kind::List; }
  bool is_map() const { return kind == Kind::Map; }
  const YamlNode* find(std::string_view key) const;  // null when absent
};

std::string_view name(YamlNode::Kind kind);  // "a list"

// What a file of UTF-8 may begin with. It is no part of the source: places, fix-its and
// regions of SARIF count from behind it.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// The one document of a file, which becomes a source of `diags`. An empty text is a null.
YamlRef parse_yaml(std::string_view bytes, const std::string& file, DiagSink& diags);

// The place of byte `offset` of a scalar's value, through quotes and escapes.
SourceLoc place_in_scalar(const YamlNode& scalar, const DiagSink& diags, size_t offset,
                          size_t length);

}  // namespace ktx::rules
