// strftime_now(format): the time of the rendering, in English whatever the locale.
//
//   format_time(tm, "%d %b %Y")   ->   "26 Jul 2024"
#pragma once

#include <ctime>
#include <string>
#include <string_view>

namespace ktx::text::jinja {

// The directives of Python's strftime, with glibc's flags (%-d); an unknown one
// is printed as it stands. %f is 000000; %z and %Z are empty, as for Python's
// naive times. Any format is safe; the result is at most 40 times as long.
std::string format_time(const std::tm& time, std::string_view format);

}  // namespace ktx::text::jinja
