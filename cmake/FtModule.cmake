# ft_module(NAME SOURCES a.c … [DEPS ft modules …] [LIBS libraries …])   -> static library ft_NAME
# ft_program(NAME SOURCES … [DEPS …] [LIBS …])                           -> executable bin/NAME
# ft_plugin(NAME SOURCES …)                                              -> libft_NAME.so, see base/plugin.h
# ft_test(NAME SOURCES … [DEPS …] [LIBS …] [LABELS unit …] [TIMEOUT s])  -> cmocka test, one process
# DEPS are the only modules whose headers a module may use: what it does not link it does not find in tests either;
# scripts/lint/layers checks the arrows in the sources themselves.

set(FT_WARNINGS -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2 -Wundef -Wcast-qual
                -Wswitch-enum -Wwrite-strings)
if(FT_WERROR)
  list(APPEND FT_WARNINGS -Werror)
endif()

function(_ft_common target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
  target_compile_options(${target} PRIVATE ${FT_WARNINGS} -fno-strict-aliasing -fvisibility=hidden)
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE FT_VERSION="${PROJECT_VERSION}")
  if(FT_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${FT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=${FT_SANITIZE})
  endif()
  if(FT_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

function(ft_module name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  if(NOT A_SOURCES)
    return()
  endif()
  add_library(ft_${name} STATIC ${A_SOURCES})
  _ft_common(ft_${name})
  foreach(d IN LISTS A_DEPS)
    target_link_libraries(ft_${name} PUBLIC ft_${d})
  endforeach()
  target_link_libraries(ft_${name} PUBLIC ${A_LIBS})
endfunction()

function(ft_program name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  _ft_common(${name})
  foreach(d IN LISTS A_DEPS)
    target_link_libraries(${name} PRIVATE ft_${d})
  endforeach()
  target_link_libraries(${name} PRIVATE ${A_LIBS})
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

function(ft_plugin name)
  cmake_parse_arguments(A "" "" "SOURCES" ${ARGN})
  add_library(ft_${name} MODULE ${A_SOURCES})
  _ft_common(ft_${name})
  set_target_properties(ft_${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${FT_PLUGIN_DIR})
  install(TARGETS ft_${name} LIBRARY DESTINATION ${FT_PLUGIN_DIR})
endfunction()

function(ft_test name)
  cmake_parse_arguments(A "" "TIMEOUT" "SOURCES;DEPS;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  _ft_common(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_compile_definitions(${name} PRIVATE FT_GOLDEN="${PROJECT_SOURCE_DIR}/tests/golden" FT_BIN="${PROJECT_BINARY_DIR}/bin"
                                             FT_SOURCE="${PROJECT_SOURCE_DIR}")
  foreach(d IN LISTS A_DEPS)
    target_link_libraries(${name} PRIVATE ft_${d})
  endforeach()
  target_link_libraries(${name} PRIVATE ${A_LIBS} cmocka)
  if(NOT A_LABELS)
    set(A_LABELS unit)
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 300)
  endif()
  if(FT_SANITIZE STREQUAL thread) # ten times slower
    math(EXPR A_TIMEOUT "${A_TIMEOUT} * 10")
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${A_LABELS}" TIMEOUT ${A_TIMEOUT} SKIP_RETURN_CODE 77)
endfunction()

# ft_script_test(NAME SCRIPT [ARGS …] [LABELS cli …] [TIMEOUT s])  runs a shell or Python-stdlib script with BIN as first argument;
# exit 77 is a skip (the script prints the reason).
function(ft_script_test name script)
  cmake_parse_arguments(A "" "TIMEOUT" "ARGS;LABELS" ${ARGN})
  if(NOT A_LABELS)
    set(A_LABELS cli)
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 600)
  endif()
  add_test(NAME ${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/${script} ${PROJECT_BINARY_DIR}/bin ${A_ARGS})
  set_tests_properties(${name} PROPERTIES LABELS "${A_LABELS}" TIMEOUT ${A_TIMEOUT} SKIP_RETURN_CODE 77
                       ENVIRONMENT "FT_SOURCE=${PROJECT_SOURCE_DIR}")
endfunction()
