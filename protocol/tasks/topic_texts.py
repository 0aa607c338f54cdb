"""The texts of the retrieval tasks with many topics: 384 topics, 24 ways to state a fact, mentions of a topic.

All of them are ours. A topic is a name and a kind of place, "the Calder archive". Each name occurs once, so that two
topics share no name; the kinds occur in no filler. Sentences with {topic} fit every topic.
"""

from protocol.tasks.problem import Fact

_NAMES_BY_KIND = {
    "archive": "Abbott Alden Amory Anson Archer Arden Ashby Atwood Avery Aylmer Baines Balfour Barlow Barrow Bartlett "
    "Baxter",
    "observatory": "Beckett Bellamy Benson Berwick Bexley Birch Blackwell Blake Bolton Bowen Bradley Bramley Brandt "
    "Brewer Briggs Bristow",
    "foundation": "Brooke Buckley Burgess Burnett Byrne Cabot Caldwell Calder Camden Carlisle Carver Cassidy Chandler "
    "Chapman Chester Clayton",
    "laboratory": "Clifton Coburn Colby Collier Conway Cooper Corbett Cowell Crane Crawford Crosby Cullen Dalton Danby "
    "Darby Davenport",
    "quarry": "Dawson Deacon Denham Denton Derwent Devlin Dexter Dillon Dobson Dorset Doyle Draper Drayton Dudley "
    "Dunbar Durham",
    "vineyard": "Easton Eaton Eddington Egerton Eldridge Ellery Ellison Elmore Elton Emerson Endicott Epworth Erskine "
    "Esmond Everett Ewing",
    "academy": "Fairfax Farley Farrow Faulkner Felton Fenwick Ferris Fielding Finch Fisher Fleming Fletcher Forbes "
    "Foster Fowler Frobisher",
    "consortium": "Gage Galloway Gardiner Garrick Garton Gifford Gilmore Glover Goddard Gower Grafton Granger Gresham "
    "Griffin Grover Gurney",
    "expedition": "Hadley Haldane Halstead Hampton Hanley Harcourt Hargrave Harlow Hartwell Haskell Hatton Hawthorne "
    "Hayward Heath Hendrick Herrick",
    "shipyard": "Hobart Holden Holloway Hopkins Horton Howell Hudson Humphrey Hurst Hutton Hyde Ingram Irving Ivory "
    "Jarvis Jessop",
    "depot": "Keating Keller Kelsey Kendrick Kenyon Keswick Kimball Kingsley Kirby Knightley Lacey Lambert Lancaster "
    "Langley Larkin Latimer",
    "refinery": "Lawson Leland Lennox Lester Lindley Linton Lockhart Lomax Lowell Ludlow Lyndon Madison Mallory "
    "Malvern Manning Marlow",
    "hospital": "Marston Mather Mayfield Melrose Mercer Merton Milner Monroe Montrose Morley Mortimer Moseley Murdoch "
    "Napier Nash Naylor",
    "museum": "Nesbitt Newland Nichols Norcross Norton Norwood Nugent Oakley Ogden Oldham Oliver Orford Osborne "
    "Oswald Overton Owens",
    "gallery": "Paget Palmer Parnell Parrish Patton Paxton Pelham Pemberton Penrose Percival Perkins Peyton Pickford "
    "Pierce Plummer Porter",
    "clinic": "Prescott Preston Purcell Quimby Quincy Radcliffe Radnor Raleigh Ramsay Randall Ransom Rawlins Redmond "
    "Reeves Renshaw Reynolds",
    "airfield": "Ridley Ripley Robson Rockwell Romney Ross Rowland Rudyard Rushton Russell Rutledge Sackville "
    "Salisbury Sanborn Sanders Sawyer",
    "institute": "Seaton Selby Selden Seymour Shelby Sheldon Sherwood Sidney Simmons Sinclair Slater Somerset Spalding "
    "Spencer Stafford Stanton",
    "cannery": "Stoddard Stratton Sterling Sumner Sutton Swinton Talbot Tanner Tarleton Tatum Tempest Tennant "
    "Thackeray Thayer Thorne Thurston",
    "greenhouse": "Tilden Tiverton Torrance Tracey Travers Trevor Truman Tucker Turner Tyndall Underwood Upton Vance "
    "Vaughan Vernon Vickers",
    "warehouse": "Wadsworth Wakefield Walcott Waldron Wallace Walpole Walton Warner Warwick Watkins Waverly Webster "
    "Weldon Wentworth Wesley Weston",
    "foundry": "Wharton Wheeler Whitby Whitman Whitney Wickham Wilder Willard Wilmot Windsor Winslow Winthrop Wolcott "
    "Woodruff Wyatt Wycliffe",
    "embassy": "Yardley Yates York Zeller Abernathy Bancroft Cavendish Dunmore Ellsworth Farnham Goodwin Hathaway "
    "Iverson Jennings Kirkland Lathrop",
    "aquarium": "Merrick Northcott Ormond Pendleton Quillan Rochester Sheffield Templeton Ulster Vandermeer Whitaker "
    "Yeoman Zimmer Ackerly Bingham Cromwell",
}
TOPICS = tuple(f"the {name} {kind}" for kind, names in _NAMES_BY_KIND.items() for name in names.split())

TEMPLATES = (
    Fact("The access code of {topic} is", ".", "What is the access code of {topic}?"),
    Fact("The invoice number of {topic} is", ".", "What is the invoice number of {topic}?"),
    Fact("In the ledger, {topic} is entered as item", ".", "As which item is {topic} entered in the ledger?"),
    Fact("The safe of {topic} opens with the combination", ".", "Which combination opens the safe of {topic}?"),
    Fact("Callers from {topic} must quote the reference", ".", "Which reference must callers from {topic} quote?"),
    Fact("The annual quota of {topic} was set at", " units.", "At how many units was the annual quota of {topic} set?"),
    Fact("The insured value of {topic} is", " crowns.", "What is the insured value of {topic} in crowns?"),
    Fact("The telephone extension of {topic} is", ".", "What is the telephone extension of {topic}?"),
    Fact("The charter of {topic} carries the seal number", ".", "Which seal number does the charter of {topic} carry?"),
    Fact("The surveyors measured the grounds of {topic} as", " acres.", "How many acres are the grounds of {topic}?"),
    Fact("The membership roll of {topic} lists", " people.", "How many people does the roll of {topic} list?"),
    Fact("Parcels for {topic} are marked with the label", ".", "With which label are parcels for {topic} marked?"),
    Fact("The alarm of {topic} is switched off with", ".", "With what is the alarm of {topic} switched off?"),
    Fact("The licence of {topic} bears the number", ".", "Which number does the licence of {topic} bear?"),
    Fact("The storage rooms of {topic} have space for", " crates.", "For how many crates has {topic} space?"),
    Fact("The radio channel reserved for {topic} is", ".", "Which radio channel is reserved for {topic}?"),
    Fact("A yearly subscription to {topic} costs", " shillings.", "How many shillings is a subscription to {topic}?"),
    Fact("The floor plan of {topic} is filed as sheet", ".", "As which sheet is the floor plan of {topic} filed?"),
    Fact("Customs stamped the papers of {topic} with", ".", "With what did customs stamp the papers of {topic}?"),
    Fact("The water meter of {topic} last showed", ".", "What did the water meter of {topic} last show?"),
    Fact("The grant for {topic} has the file number", ".", "Which file number has the grant for {topic}?"),
    Fact("The inspectors of {topic} counted", " lamps.", "How many lamps did the inspectors of {topic} count?"),
    Fact("The inventory of {topic} ends at entry", ".", "At which entry does the inventory of {topic} end?"),
    Fact("The last payment to {topic} was cheque number", ".", "Which cheque number was the last payment to {topic}?"),
)

MENTIONS = (
    "Several travellers spoke warmly of {topic}.",
    "The committee devoted an afternoon to {topic}.",
    "A short article described the history of {topic}.",
    "Two new colleagues joined {topic} this season.",
    "The future of {topic} was discussed once more.",
    "Letters about {topic} arrived throughout the month.",
    "Repairs at {topic} continued without delay.",
    "The director of {topic} thanked everyone for their patience.",
    "Nobody doubted that {topic} would remain important.",
    "The accounts of {topic} were presented to the board.",
    "Photographs of {topic} were shown to the guests.",
    "Neighbours of {topic} noticed unusual activity.",
    "A lecture on {topic} drew a large audience.",
    "The council praised the careful work of {topic}.",
    "New equipment was delivered to {topic} by rail.",
    "The staff of {topic} held their annual dinner.",
    "A delegation travelled to {topic} before the holidays.",
    "The reputation of {topic} grew steadily.",
    "Questions concerning {topic} were answered in writing.",
    "An old friend wrote a poem about {topic}.",
    "The timetable of {topic} was revised twice.",
    "Reporters asked whether {topic} would expand.",
    "Training at {topic} began earlier than usual.",
    "A yearly review of {topic} found little to criticise.",
)

GENERAL = (
    "Various establishments were discussed in passing.",
    "The summary covered several places of the region.",
    "Comparable institutions reported a quiet season.",
    "Visits to other sites were planned for later.",
    "Most organisations of this kind changed little.",
    "Similar undertakings kept their usual pace.",
    "The region as a whole developed as expected.",
    "Other partners sent their greetings.",
    "A few houses of the district were repainted.",
    "Several associations renewed their statutes.",
    "Experts compared the results of many sites.",
    "Guests from elsewhere asked general questions.",
)
