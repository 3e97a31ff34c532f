#include "lib/text/grammar/string_formats.h"

namespace ktx::text::grammar {
namespace {

struct Format {
  std::string_view name;
  std::string_view pattern;
};
#define KTX_YEAR "[12][0-9]{3}"  // a year 0 is none
#define KTX_DATE KTX_YEAR "-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
#define KTX_TIME \
  "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define KTX_OCTET "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define KTX_HEX "[0-9A-Fa-f]{1,4}"
#define KTX_LABEL "[A-Za-z0-9](-?[A-Za-z0-9]){0,30}"
#define KTX_HOST KTX_LABEL "(\\." KTX_LABEL ")*"
#define KTX_OTHER \
  "\\u00A1-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF"  // letters of all scripts, in IRIs
#define KTX_IDN_LABEL \
  "[a-z0-9\\u00E0-\\u00F6\\u00F8-\\u00FF](-?[a-z0-9\\u00E0-\\u00F6\\u00F8-\\u00FF]){0,20}"
#define KTX_IRI_TEXT "([A-Za-z0-9._~:/@!$&'()*+,;=" KTX_OTHER "-]|%[0-9A-F]{2})"
// A part of a path, in which a colon could not stand.
#define KTX_URL_PART "([A-Za-z0-9._~@!$&'()*+,;=-]|%[0-9A-F]{2})"
#define KTX_IRI_PART "([A-Za-z0-9._~@!$&'()*+,;=" KTX_OTHER "-]|%[0-9A-F]{2})"
#define KTX_ABSOLUTE(text)                                                                       \
  "([a-z][a-z0-9+-]{0,15}://" KTX_HOST "(:[0-9]{1,4})?(/" text "*)?|(mailto|tel|urn|data):" text \
  "+)"
#define KTX_RELATIVE(part) "(/?" part "+(/" part "*)*|/|)"
#define KTX_BEHIND_PATH(text) "(\\?" text "*)?(#" text "*)?"
#define KTX_POINTER "(/([^/~]|~[01])*)*"
#define KTX_VARIABLE "[A-Za-z0-9_](\\.?[A-Za-z0-9_]){0,30}(\\*|:[1-9][0-9]{0,3})?"
// Parts of regular expressions: a character or class, a repetition, and the content of a group.
#define KTX_RE_CLASS "\\[\\^?([^\\\\\\[\\]^-]|a-z|A-Z|0-9|\\\\[dDwWsSnrt\\\\\\[\\]^-])+\\]"
#define KTX_RE_ATOM \
  "([^\\\\^$.*+?()\\[\\]{}|/]|\\.|\\\\[dDwWsSnrtfv^$.*+?()\\[\\]{}|/\\\\-]|" KTX_RE_CLASS ")"
#define KTX_RE_REPEAT "((\\*|\\+|\\?|\\{[0-9]{1,2}(,|,[1-9][0-9]{2})?\\})(\\?)?)?"
#define KTX_RE_INNER "(" KTX_RE_ATOM KTX_RE_REPEAT "|\\\\[bB])*"
#define KTX_RE_GROUP "\\((\\?:)?" KTX_RE_INNER "(\\|" KTX_RE_INNER ")*\\)"
#define KTX_RE_OUTER \
  "\\^?(" KTX_RE_ATOM KTX_RE_REPEAT "|\\\\[bB]|" KTX_RE_GROUP KTX_RE_REPEAT ")*\\$?"
#define KTX_URL_TEXT "([A-Za-z0-9._~:/@!$&'()*+,;=-]|%[0-9A-F]{2})"
constexpr Format kFormats[] = {
    // Days 29 to 31 exist in some months only.
    {"date",
     "^(" KTX_DATE "|" KTX_YEAR "-(0[13-9]|1[0-2])-(29|30)|" KTX_YEAR "-(0[13578]|1[02])-31)$"},
    {"time", "^" KTX_TIME "$"},
    {"date-time", "^(" KTX_DATE "|" KTX_YEAR "-(0[13-9]|1[0-2])-(29|30)|" KTX_YEAR
                  "-(0[13578]|1[02])-31)T" KTX_TIME "$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
    // Years, months and days; hours, minutes and seconds without a gap between them.
    {"duration",
     "^P([0-9]{1,4}W|[0-9]{1,4}D(T[0-9]{1,4}H)?|[0-9]{1,4}Y([0-9]{1,2}M([0-9]{1,2}D)?)?|"
     "[0-9]{1,4}M([0-9]{1,2}D)?|T([0-9]{1,4}H([0-9]{1,2}M([0-9]{1,2}S)?)?|"
     "[0-9]{1,4}M([0-9]{1,2}S)?|[0-9]{1,4}S))$"},
    {"email",
     "^[A-Za-z0-9_+-]{1,30}(\\.[A-Za-z0-9_+-]{1,30})?@(" KTX_LABEL "\\.){1,4}[A-Za-z]{2,10}$"},
    {"hostname", "^" KTX_LABEL "(\\." KTX_LABEL "){0,3}$"},
    {"ipv6", "^(" KTX_HEX ":){7}" KTX_HEX "$|^(" KTX_HEX ":){1,6}:" KTX_HEX "$|^::(" KTX_HEX ")?$"},
    {"uri", "^" KTX_ABSOLUTE(KTX_URL_TEXT) KTX_BEHIND_PATH(KTX_URL_TEXT) "$"},
    {"uri-reference", "^(" KTX_ABSOLUTE(KTX_URL_TEXT) "|" KTX_RELATIVE(
                          KTX_URL_PART) ")" KTX_BEHIND_PATH(KTX_URL_TEXT) "$"},
    {"iri", "^" KTX_ABSOLUTE(KTX_IRI_TEXT) KTX_BEHIND_PATH(KTX_IRI_TEXT) "$"},
    {"iri-reference", "^(" KTX_ABSOLUTE(KTX_IRI_TEXT) "|" KTX_RELATIVE(
                          KTX_IRI_PART) ")" KTX_BEHIND_PATH(KTX_IRI_TEXT) "$"},
    {"uri-template", "^([A-Za-z0-9._~:/?#@!$&()*+,;=-]|%[0-9A-F]{2}|\\{[+#./;?&]?" KTX_VARIABLE
                     "(," KTX_VARIABLE ")*\\})*$"},
    {"idn-email", "^[A-Za-z0-9_+" KTX_OTHER "-]{1,30}(\\.[A-Za-z0-9_+" KTX_OTHER
                  "-]{1,30})?@(" KTX_LABEL "\\.){1,4}[A-Za-z]{2,10}$"},
    {"idn-hostname", "^" KTX_IDN_LABEL "(\\." KTX_IDN_LABEL "){0,3}$"},
    {"json-pointer", "^" KTX_POINTER "$"},
    {"relative-json-pointer", "^(0|[1-9][0-9]{0,3})(#|" KTX_POINTER ")$"},
    {"regex", "^" KTX_RE_OUTER "(\\|" KTX_RE_OUTER ")*$"},
    {"ipv4", "^" KTX_OCTET "\\." KTX_OCTET "\\." KTX_OCTET "\\." KTX_OCTET "$"},
};
#undef KTX_YEAR
#undef KTX_DATE
#undef KTX_TIME
#undef KTX_OCTET
#undef KTX_HEX
#undef KTX_LABEL
#undef KTX_HOST
#undef KTX_URL_TEXT
#undef KTX_RE_OUTER
#undef KTX_RE_GROUP
#undef KTX_RE_INNER
#undef KTX_RE_REPEAT
#undef KTX_RE_ATOM
#undef KTX_RE_CLASS
#undef KTX_VARIABLE
#undef KTX_POINTER
#undef KTX_BEHIND_PATH
#undef KTX_RELATIVE
#undef KTX_ABSOLUTE
#undef KTX_IRI_PART
#undef KTX_URL_PART
#undef KTX_IRI_TEXT
#undef KTX_IDN_LABEL
#undef KTX_OTHER

}  // namespace

std::string_view pattern_of_format(std::string_view name) {
  for (const Format& row : kFormats) {
    if (row.name == name) return row.pattern;
  }
  return "";
}

}  // namespace ktx::text::grammar
