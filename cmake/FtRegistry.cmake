# ft_registry(KIND NAMES a b … KNOWN a b c … [HINTS c "how a build gets it" …])
# A registry is a list of names and one generated table. Each built NAME has a file that defines
#     const struct ft_KIND_ops ft_KIND_NAME;
# The generated ${build}/generated/registry/KIND.c holds
#     const struct ft_KIND_entry ft_KIND_table[] = { {"a", &ft_KIND_a}, …, {"c", 0}, {0, 0} };
# where a NULL ops means: known, but not in this build; with HINTS such a row is {"c", 0, "how a build gets it"}. The header KIND_registry.h beside the ops declares ft_KIND_entry.
function(ft_registry kind header)
  cmake_parse_arguments(A "" "" "NAMES;KNOWN;HINTS" ${ARGN})
  set(decl "")
  set(end "{0, 0}")
  if(A_HINTS)
    set(end "{0, 0, 0}")
  endif()
  set(rows "")
  foreach(n IN LISTS A_NAMES)
    string(APPEND decl "extern const struct ft_${kind}_ops ft_${kind}_${n};\n")
    if(A_HINTS)
      string(APPEND rows "    {\"${n}\", &ft_${kind}_${n}, 0},\n")
    else()
      string(APPEND rows "    {\"${n}\", &ft_${kind}_${n}},\n")
    endif()
  endforeach()
  foreach(n IN LISTS A_KNOWN)
    if(n IN_LIST A_NAMES)
      continue()
    endif()
    list(FIND A_HINTS "${n}" at)
    if(NOT at EQUAL -1)
      math(EXPR at "${at} + 1")
      list(GET A_HINTS ${at} hint)
      string(APPEND rows "    {\"${n}\", 0, \"${hint}\"},\n")
    elseif(A_HINTS)
      string(APPEND rows "    {\"${n}\", 0, 0},\n")
    else()
      string(APPEND rows "    {\"${n}\", 0},\n")
    endif()
  endforeach()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/registry/${kind}.c CONTENT
"/* Generated from the list of names in CMake. */
#include \"${header}\"
${decl}
const struct ft_${kind}_entry ft_${kind}_table[] = {
${rows}    ${end},
};
" @ONLY)
endfunction()
