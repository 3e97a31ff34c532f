// A table for a terminal: every column is as wide as its widest cell, in any script.
//
//   TextTable table({{"model", TextTable::Left}, {"t/s"}});
//   table.add({"通义 8B", "41.3"});
//   table.markdown();   // | model   |  t/s |
//                       // | ------- | ---: |
//                       // | 通义 8B | 41.3 |
//   table.plain("  ");  // the same without lines, indented
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ktx {

class TextTable {
 public:
  enum Side { Right, Left };
  struct Column {
    std::string name;
    Side side = Right;
  };

  explicit TextTable(std::vector<Column> columns);

  // As many cells as columns; missing ones are empty.
  void add(std::vector<std::string> cells);

  // "|" in a cell is escaped.
  std::string markdown() const;
  // Two spaces between columns, none at the end of a line; no head where no column has a name.
  std::string plain(std::string_view indent = "") const;

 private:
  std::vector<size_t> widths(const std::vector<std::vector<std::string>>& rows) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Sizes of one column in one unit, that of the largest: "17.32 GiB", "0.08 GiB". What is
// less than a hundredth of it and not zero is "<0.01 GiB".
class ByteUnit {
 public:
  explicit ByteUnit(uint64_t largest);
  std::string text(uint64_t bytes) const;

 private:
  int shift_;
  const char* name_;
};

}  // namespace ktx
