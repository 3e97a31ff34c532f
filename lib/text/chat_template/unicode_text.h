// Python's view of UTF-8 text: code points, white space, case, line ends.
//
//   count_code_points("né")        // 2
//   strip(" a\u00a0", "", …)       // "a": Unicode white space, as str.strip()
//
// Bytes that are not UTF-8 count as one code point each, so that every function
// is safe for any bytes and loses none of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ktx::text {

// Length in bytes of the code point at the start of `text` (not empty).
size_t code_point_bytes(std::string_view text);
// The same at its end.
size_t last_code_point_bytes(std::string_view text);
// The same with its value; a byte that is not UTF-8 gives 0xDC80 + byte (a
// surrogate, as Python's surrogateescape).
char32_t decode_code_point(std::string_view text, size_t* bytes);
void append_code_point(std::string& out, char32_t code_point);

int64_t count_code_points(std::string_view text);
// Byte offset of the `index`-th code point; text.size() past the end.
size_t code_point_offset(std::string_view text, int64_t index);
std::vector<std::string_view> code_points(std::string_view text);

bool is_python_space(char32_t code_point);
bool is_space_text(std::string_view text);  // not empty, nothing but white space
bool is_printable(char32_t code_point);     // shown as itself by repr()
bool is_alpha(char32_t code_point);
bool is_decimal(char32_t code_point);  // str.isdecimal; isdigit and isnumeric take more
bool is_digit(char32_t code_point);
bool is_numeric(char32_t code_point);
bool is_upper(char32_t code_point);
bool is_lower(char32_t code_point);
bool is_word(char32_t code_point);  // \w of Python's re

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);        // str.title()
std::string to_capitalized(std::string_view text);  // str.capitalize()
std::string to_swapped_case(std::string_view text);

enum class Side { Both, Left, Right };
// Without the code points in `characters` (empty: white space) at its ends.
std::string_view strip(std::string_view text, std::string_view characters, Side side);
std::string_view strip_space(std::string_view text, Side side);

// The lines of str.splitlines(); `keep_ends` keeps the line ends.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

// First or last place of `needle`, in linear time for any input; npos without.
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);
size_t rfind_text(std::string_view text, std::string_view needle);

}  // namespace ktx::text
