# ft_embed(OUT HEADER NAME FILE …)  writes a C file with `const char NAME_<base>[]` (NUL terminated) for each FILE; <base> is the
# file's name up to its first dot. HEADER declares them. Run again when a FILE changes.
function(ft_embed out header name)
  set(text "/* Generated from ${ARGN}. */\n#include \"${header}\"\n")
  foreach(f IN LISTS ARGN)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${f})
    get_filename_component(base ${f} NAME_WE)
    file(READ ${f} hex HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
    string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n    " bytes "${bytes}")
    string(APPEND text "const char ${name}_${base}[] = {\n    ${bytes}0};\n")
  endforeach()
  file(CONFIGURE OUTPUT ${out} CONTENT "${text}" @ONLY)
endfunction()
