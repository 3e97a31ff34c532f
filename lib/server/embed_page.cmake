# cmake -DIN=web_ui/index.html -DLIBRARIES="marked=/usr/…/marked.min.js;…" -DOUT=web_page.html
#       -P embed_page.cmake
#
# The page as one file, with its styles, scripts and libraries in place: <script src="a.js"></script>
# becomes <script>...</script>. One file is one reply, and a browser can open the folder as it
# stands, without libraries.
get_filename_component(folder ${IN} DIRECTORY)
file(READ ${IN} page)
string(REGEX MATCHALL "(src|href)=\"[a-z_]+\\.(js|css)\"" links "${page}")
foreach(link ${links})
  string(REGEX REPLACE ".*\"(.*)\"" "\\1" name "${link}")
  file(READ ${folder}/${name} part)
  string(TOLOWER "${part}" lower)
  if(lower MATCHES "</(script|style)")
    message(FATAL_ERROR "${name}: holds the end of its own element")
  endif()
  if(name MATCHES "js$")
    string(REPLACE "<script src=\"${name}\"></script>" "<script>\n${part}</script>" page "${page}")
  else()
    string(REPLACE "<link rel=\"stylesheet\" href=\"${name}\">" "<style>\n${part}</style>" page "${page}")
  endif()
endforeach()
foreach(library ${LIBRARIES})
  string(REGEX REPLACE "^([a-z]+)=.*" "\\1" name "${library}")
  string(REGEX REPLACE "^[a-z]+=" "" file "${library}")
  file(READ ${file} part)
  # What HTML would read as the end of the script, or as a comment in it; in strings and regular
  # expressions, where it stands, the same by another name.
  foreach(mark "/script" "script" "!--")
    string(REPLACE "<${mark}" "\\x3c${mark}" part "${part}")
  endforeach()
  string(REPLACE "<script data-library=\"${name}\"></script>" "<script>\n${part}\n</script>" page "${page}")
endforeach()
string(REGEX REPLACE "<script data-library=\"[a-z]+\"></script>\n" "" page "${page}")
file(WRITE ${OUT} "${page}")
