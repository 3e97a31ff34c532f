#include "lib/support/text_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/support/display_width.h"

namespace ktx {
namespace {

std::string padded(const std::string& cell, size_t width, TextTable::Side side) {
  const std::string space(width - std::min(width, display_width(cell)), ' ');
  return side == TextTable::Left ? cell + space : space + cell;
}

std::string without_bars(const std::string& cell) {
  std::string out;
  for (const char c : cell) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

}  // namespace

TextTable::TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

void TextTable::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::vector<size_t> TextTable::widths(const std::vector<std::vector<std::string>>& rows) const {
  std::vector<size_t> out;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t width = display_width(columns_[i].name);
    for (const auto& row : rows) width = std::max(width, display_width(row[i]));
    out.push_back(width);
  }
  return out;
}

std::string TextTable::markdown() const {
  std::vector<std::vector<std::string>> rows = rows_;
  for (auto& row : rows) std::transform(row.begin(), row.end(), row.begin(), without_bars);
  std::vector<size_t> wide = widths(rows);
  for (size_t& width : wide) width = std::max<size_t>(width, 3);
  std::string head = "|", line = "|", out;
  for (size_t i = 0; i < columns_.size(); ++i) {
    head += fmt::format(" {} |", padded(columns_[i].name, wide[i], columns_[i].side));
    line += columns_[i].side == Left ? fmt::format(" {} |", std::string(wide[i], '-'))
                                     : fmt::format(" {}: |", std::string(wide[i] - 1, '-'));
  }
  for (const auto& row : rows) {
    out += '|';
    for (size_t i = 0; i < row.size(); ++i) {
      out += fmt::format(" {} |", padded(row[i], wide[i], columns_[i].side));
    }
    out += '\n';
  }
  return fmt::format("{}\n{}\n{}", head, line, out);
}

std::string TextTable::plain(std::string_view indent) const {
  std::vector<std::vector<std::string>> rows = rows_;
  std::vector<std::string> names;
  for (const Column& column : columns_) names.push_back(column.name);
  const bool named = std::any_of(names.begin(), names.end(),
                                 [](const std::string& name) { return !name.empty(); });
  if (named) rows.insert(rows.begin(), std::move(names));
  const std::vector<size_t> wide = widths(rows);
  std::string out;
  for (const auto& row : rows) {
    std::string line(indent);
    for (size_t i = 0; i < row.size(); ++i) {
      line += (i > 0 ? "  " : "") + padded(row[i], wide[i], columns_[i].side);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

ByteUnit::ByteUnit(uint64_t largest) : shift_(0), name_("B") {
  constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  for (size_t unit = 1; unit < std::size(kNames) && largest >> (10 * unit) > 0; ++unit) {
    shift_ = static_cast<int>(10 * unit);
    name_ = kNames[unit];
  }
}

std::string ByteUnit::text(uint64_t bytes) const {
  if (shift_ == 0) return fmt::format("{} B", bytes);
  const double value = static_cast<double>(bytes) / static_cast<double>(uint64_t{1} << shift_);
  if (bytes > 0 && value < 0.005) return fmt::format("<0.01 {}", name_);
  return fmt::format("{:.2f} {}", value, name_);
}

}  // namespace ktx
