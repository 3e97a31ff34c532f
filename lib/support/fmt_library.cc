// fmt, compiled once. Distributions ship fmt as headers and as a shared library; with
// the headers alone every file would compile all of it (half of its build time),
// and a shared library is one more thing that a machine may lack.
//
// These are the parts of fmt 8 to 12 that its headers only declare; which ones differs a little
// by version. A version that moves one shows as an undefined symbol when a program is linked.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
#if FMT_VERSION >= 120000  // moved out of `detail`
template FMT_API locale_ref::locale_ref(const std::locale& loc);
template FMT_API auto locale_ref::get<std::locale>() const -> std::locale;
#endif
namespace detail {

#if FMT_VERSION < 120000
template FMT_API locale_ref::locale_ref(const std::locale& loc);
template FMT_API auto locale_ref::get<std::locale>() const -> std::locale;
#endif
template FMT_API auto dragonbox::to_decimal(float x) noexcept -> dragonbox::decimal_fp<float>;
template FMT_API auto dragonbox::to_decimal(double x) noexcept -> dragonbox::decimal_fp<double>;
template FMT_API auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
template FMT_API void buffer<char>::append(const char*, const char*);

#if FMT_VERSION < 100000
template FMT_API void vformat_to(buffer<char>&, string_view,
                                 basic_format_args<FMT_BUFFER_CONTEXT(char)>, locale_ref);
#elif FMT_VERSION < 110000
template FMT_API void vformat_to(buffer<char>&, string_view, typename vformat_args<>::type,
                                 locale_ref);
#endif
#if FMT_VERSION < 90000
template FMT_API int snprintf_float(double, int, float_specs, buffer<char>&);
template FMT_API int snprintf_float(long double, int, float_specs, buffer<char>&);
template FMT_API int format_float(double, int, float_specs, buffer<char>&);
template FMT_API int format_float(long double, int, float_specs, buffer<char>&);
#endif

}  // namespace detail
FMT_END_NAMESPACE
